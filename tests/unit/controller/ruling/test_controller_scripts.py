"""Whatever happens to brokers, leaders and controllers, in whatever order: the promises of invariants.py hold."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from regency.controller.elections.controlled_shutdown import ControlledShutdown
from regency.model import znodes
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb
from regency.runtime.zookeeper.session import Delete, SetData

BROKERS = (1, 2, 3, 4)
broker = st.sampled_from(BROKERS)
candidate = st.integers(0, 1)

TOP_LEVEL = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.STALE_CONTROLLER_EPOCH,
    ErrorCode.INVALID_REQUEST,
)
PER_PARTITION = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("start"), broker),
        st.tuples(st.just("kill"), broker),
        st.tuples(st.just("bounce"), broker),
        st.tuples(st.just("leave"), broker),
        st.tuples(st.just("topic"), st.permutations(BROKERS), st.integers(1, 4)),
        st.tuples(st.just("leader writes isr"), st.integers(0, 5), st.sets(broker), st.booleans()),
        st.tuples(st.just("expire"), candidate),
        st.tuples(st.just("delete controller")),
        st.tuples(st.just("lose replies"), candidate, st.integers(1, 2)),
        st.tuples(st.just("disconnect"), candidate),
        st.tuples(st.just("agent refuses all"), broker, st.sampled_from(TOP_LEVEL), st.integers(1, 3)),
        st.tuples(st.just("agent refuses one"), broker, st.sampled_from(PER_PARTITION), st.integers(1, 3)),
    ),
    min_size=3,
    max_size=25,
)


class Script:
    """A world with two candidates, and what was true of it so far."""

    def __init__(self, world) -> None:
        self.world = world
        world.start_brokers(1, 2, 3)
        world.candidate(1)
        world.candidate(2)
        self.topics = 2
        world.write_topic("t1", {0: [1, 2, 3]})
        world.write_topic("t2", {0: [2, 4, 3], 1: [3]})
        self.epochs: dict[str, tuple[int, int]] = {}

    def live(self) -> set[int]:
        return {number for number in BROKERS if paths.broker(number) in self.world.ensemble.nodes}

    def partitions(self) -> list[TopicPartition]:
        found = (paths.parse_partition_state(path) for path in sorted(self.world.ensemble.nodes))
        return [each for each in found if each is not None]

    def do(self, step) -> None:
        world = self.world
        match step:
            case ("start", number) if number not in self.live():
                world.start_broker(number)
            case ("kill", number) if number in self.live():
                world.kill_broker(number)
            case ("bounce", number) if number in self.live():
                world.ensemble.multi(0, [Delete(paths.broker(number), None)])
                world.start_broker(number)
            case ("leave", number) if number in self.live():
                for each in world.candidates:
                    each.queue.put(ControlledShutdown(number, -1))
                world.settle()
                world.kill_broker(number)
            case ("topic", order, factor):
                self.topics += 1
                world.write_topic(f"t{self.topics}", {0: order[:factor]})
            case ("leader writes isr", index, members, notified):
                self.write_isr(index, members, notified=notified)
            case _:
                self.disturb(step)
        world.settle()

    def disturb(self, step) -> None:
        """What goes wrong with controllers, connections and agents."""
        world = self.world
        match step:
            case ("expire", index):
                world.candidates[index].session.expire()
            case ("delete controller",) if paths.CONTROLLER in world.ensemble.nodes:
                world.ensemble.delete(paths.CONTROLLER)
            case ("lose replies", index, count):
                world.candidates[index].session.lose_replies = count
            case ("agent refuses all", number, code, times) if number in world.agents:
                world.agents[number].answers.extend([pb.ControlResponse(error_code=code)] * times)
            case ("agent refuses one", number, code, times) if number in world.agents:
                refused = pb.PartitionErrors(topic="t1", partition=[0], error_code=[code])
                world.agents[number].answers.extend([pb.ControlResponse(topics=[refused])] * times)
            case ("disconnect", index):
                world.candidates[index].session.reconnect()

    def write_isr(self, index: int, members: set[int], *, notified: bool) -> None:
        """A leader changes its ISR by compare-and-set, as agents do."""
        partitions = self.partitions()
        if not partitions:
            return
        partition = partitions[index % len(partitions)]
        path = paths.partition_state(partition)
        node = self.world.ensemble.nodes[path]
        known = znodes.decode_state(path, node.data, zk_version=node.version)
        now = known.leader_and_isr
        if now.leader not in self.live():
            return
        assigned = znodes.decode_topic(
            "", self.world.ensemble.nodes[paths.topic(partition.topic)].data, topic="", zk_version=0, czxid=0
        )
        replicas = assigned.partitions[partition.partition].replicas
        able = members & (set(BROKERS) if notified else self.live())  # it may take in one that has just died
        isr = tuple(each for each in replicas if each == now.leader or each in able)
        changed = LeaderIsrAndControllerEpoch(LeaderAndIsr(now.leader, now.leader_epoch, isr), known.controller_epoch)
        self.world.ensemble.multi(0, [SetData(path, znodes.encode_state(changed), node.version)])
        if notified:
            self.world.notify_isr_change(partition)

    def check_epochs(self) -> None:
        for partition in self.partitions():
            _, _, leader_epoch, controller_epoch = self.world.state(*partition)
            before = self.epochs.get(str(partition), (-1, -1))
            assert leader_epoch >= before[0], f"leader epoch of {partition} went back"
            assert controller_epoch >= before[1], f"controller epoch of {partition} went back"
            self.epochs[str(partition)] = (leader_epoch, controller_epoch)

    def finish(self) -> None:
        """Let every delay pass, then look at the whole."""
        for _ in range(12):
            self.world.clock.advance(10_000)
            self.world.settle()
        assert [each.rules for each in self.world.candidates].count(True) == 1
        live = self.live()
        for partition in self.partitions():
            leader, isr, leader_epoch, _ = self.world.state(*partition)
            assert isr
            if live & set(isr):
                assert leader in set(isr) <= live, f"{partition} has leader {leader}, isr {isr}, live are {live}"
            else:
                assert leader == -1
            self.check_agents(partition, live, leader, leader_epoch)
        assert self.world.ensemble.names(paths.ISR_CHANGE_NOTIFICATION) == ()

    def check_agents(self, partition: TopicPartition, live: set[int], leader: int, leader_epoch: int) -> None:
        ruler = next(each for each in self.world.candidates if each.rules)
        for replica in ruler.term.context.assignment(partition).replicas:
            if replica in live:
                told = self.world.agents[replica].states[partition]
                assert told[:2] == (leader, leader_epoch), f"broker {replica} was told {told} of {partition}"
        assert ruler.term.channels.unacknowledged == 0


@settings(max_examples=100, deadline=None)
@given(steps)
def test_after_any_script_every_partition_with_a_live_member_is_led_and_everybody_knows(new_world, script):
    told = Script(new_world())
    for step in script:
        told.do(step)
        told.check_epochs()
    told.finish()
