"""Drills of what stands in ZooKeeper and was not heard of: replies and notifications that are lost, topics made anew.

First of all who rules is deposed, and then whoever rules goes on ruling: a failover reads everything again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from regency.controller.channel.channel_manager import ControllerChannelManager
from regency.controller.channel.log_questions import ANSWER_WITHIN_MS
from regency.controller.store.cluster_store import LAST_LEADER_EPOCH
from regency.model import znodes
from regency.model.facts import ReplicaAssignment, TopicAssignment
from regency.model.ids import BrokerId, TopicPartition, ZkVersion
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb
from simulation.admin import Admin
from simulation.cluster.channels import CONTROL, ControlAsked
from simulation.faults.memory_faults import take_away_notifications
from simulation.faults.network_faults import Trouble
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.scripts import Script, Scripts
from simulation.faults.stage import Deed, Stage
from simulation.judging.invariants import broken
from simulation.judging.zookeeper_rules import Commit
from simulation.kernel.scheduler import Process
from simulation.shape import TopicShape


def deeds(stage: Stage) -> dict[Kind, Deed]:
    """The faults of this file."""
    drills = _Drills(stage)
    return {Kind.DRILL_LOST_WRITES: drills.of(drills.lost_writes)}


class _Drills(Scripts):
    _spared: BrokerId | None = None
    """Nobody restarts it: it would be told again what it must have been told."""

    def lost_writes(self, fault: Fault, undone: ExitStack) -> Script:
        """The next one, and the notifications again and again: nothing happens after them."""
        order = (self.callers, self.lost_state, self.new_topics, self.news_meanwhile, self.notifications)
        script = order[min(self._done, len(order)) - 1]
        self._stage.note("drill", "%s", script.__name__.replace("_", " "))
        yield from script(fault, undone)

    def callers(self, fault: Fault, undone: ExitStack) -> Script:
        """Who rules stands still in the middle of an event, is asked for a topic meanwhile, and loses its session."""
        yield lambda: bool(self._known())
        ruler = self._ruler()
        if ruler is None:
            return
        sim, name = self._world.controllers[ruler], f"controller-{ruler}"
        stall = self._stalled(name, "controller.isr_shrink.before_write", undone)
        self._expire(fault.chance().choice([each for each in self._world.hosts if each != ruler]))
        yield lambda: stall.reached
        created: list[str] = []
        topic = TopicShape(f"asked-{fault.at_us}", 1, 2, 1)
        Admin(self._world, (topic,), lambda: created.append(topic.name))
        yield lambda: bool(sim.unanswered)
        self._world.zk_links[name].expire()
        yield 0.1
        stall.end()
        yield lambda: bool(created)

    def notifications(self, fault: Fault, undone: ExitStack) -> Script:
        """The first notification of every leader that takes somebody in is lost, and nothing happens afterwards.

        But that a partition moves, and that the notification of the ISR that ends the move is removed unread.
        """
        del undone

        def lose(process: Process) -> None:
            self._world.zk_links[process.name].lose_next_request()

        for each in self._world.hosts:
            self._stage.points.arm([f"agent-{each}"], ["agent.isr_notification.before_write"], lose)
        others = [each for each in self._world.hosts if each not in (self._ruler(), self._spared)]
        host = self._world.hosts[fault.chance().choice(others)]
        self._stage.die(host, lossy=False)
        self._stage.later(int(fault.detail * SECOND_US), self._stage.keep_down(host))
        yield 4.0
        if not self._world.shape.reconciles:
            return
        first, second, third = fault.chance().sample(sorted(self._world.hosts), 3)
        moving = TopicPartition(f"moved-{fault.at_us}", 0)
        self._write_topic(moving, [first, second])
        yield lambda: len(self._isr(moving)) == 2
        take_away_notifications(self._stage, fault.for_us)
        self._ask({moving: (second, third)})

    def lost_state(self, fault: Fault, undone: ExitStack) -> Script:
        """A partition's state is lost, of which a follower lacks something, while the leader is busy with an order.

        Then another broker says of it that it holds nearly the last leader epoch there can be.
        """
        yield lambda: bool(self._full())
        led = fault.chance().choice(self._full())
        partition, leader = led.partition, led.state.leader
        behind, other = fault.chance().sample(led.followers, 2)
        undone.enter_context(self._apart(behind, leader))
        self._expire(behind)
        yield lambda: behind not in self._isr(partition)
        order = self._stalled(
            f"agent-{leader}",
            "agent.control.after_admission",
            undone,
            when=lambda: self._is_up_to_date(leader, partition),
        )
        yield lambda: order.reached  # it hears that the other has registered again
        yield lambda: self._end(behind, partition) < self._high_watermark(leader, partition)
        self._stage.told.losing_state(partition)
        self._remove(paths.partition_state(partition))
        undone.callback(self._forge_answer(other, partition))
        self._world.zookeeper.delete_as_admin(paths.CONTROLLER)
        late_us = self._world.scheduler.now_us + ANSWER_WITHIN_MS * 1_000
        yield lambda: bool(self._isr(partition)) or self._world.scheduler.now_us > late_us
        if not self._isr(partition):
            raise broken("busy-are-heard", f"{partition} waits for broker {leader}, which is busy with an order")
        order.end()
        yield lambda: self._leads(leader, partition) or self._leads(other, partition)
        yield 0.3

    def _is_up_to_date(self, broker: BrokerId, partition: TopicPartition) -> bool:
        state, held = self._state(partition), self._held(broker, partition)
        return state is not None and held is not None and held.leader_epoch == state.leader_epoch

    def _forge_answer(self, broker: BrokerId, partition: TopicPartition) -> Callable[[], None]:
        """The first answer of a broker that has to do with a partition says that it is far ahead; the undoing."""
        network, to = self._world.network, f"{self._world.hosts[broker].name}:{CONTROL}"

        def forge(address: str, request: object, answer: Any) -> Any:
            if address != to or not isinstance(request, ControlAsked) or request.rpc is not pb.LeaderAndIsrRequest:
                return answer
            asked, told = request.rpc.FromString(request.data), pb.ControlResponse.FromString(answer)
            for topic in asked.topics:
                if topic.topic == partition.topic and partition.partition in topic.partition and not told.topics:
                    told.topics.add(
                        topic=topic.topic,
                        topic_id=topic.topic_id,
                        partition=[partition.partition],
                        error_code=[ErrorCode.FENCED_LEADER_EPOCH],
                        leader_epoch=[LAST_LEADER_EPOCH - 1],
                    )
                    network.forge = None
            return told.SerializeToString()

        network.forge = forge
        return partial(setattr, network, "forge", None)

    def new_topics(self, fault: Fault, undone: ExitStack) -> Script:
        """ZooKeeper's reply to a new topic's state is lost; another topic is deleted and made anew while nobody looks.

        All its replicas are down then: nobody holds on to the one before. Meanwhile somebody asks to reassign the first
        one, and has another mind before that can be done; and deletes a third one, which is being reassigned, too.
        """
        yield lambda: bool(self._known())
        ruler = self._ruler()
        if ruler is None:
            return
        replicas = fault.chance().sample([each for each in self._world.hosts if each != ruler], 2)
        unheard, anew = TopicPartition(f"unheard-{fault.at_us}", 0), TopicPartition(f"anew-{fault.at_us}", 0)
        self._lose_reply(paths.partition_state(unheard), f"controller-{ruler}")
        moving = TopicPartition(f"moving-{fault.at_us}", 0)
        for each in (unheard, anew, moving):
            self._write_topic(each, replicas)
        yield lambda: all(len(self._isr(each)) == len(replicas) for each in (unheard, anew, moving))
        yield lambda: all(self._held(each, anew) is not None for each in replicas)
        downs = [undone.enter_context(self._end_agent(each)) for each in replicas]
        yield lambda: bool(self._known()) and not any(each in self._known() for each in replicas)
        self._remove(paths.topic(anew.topic))
        self._write_topic(anew, replicas)
        yield 0.2
        target = (ruler, replicas[0])
        self._ask({unheard: target, moving: target})
        yield 0.3
        self._ask({unheard: (ruler,), moving: target})
        yield 0.1
        self._world.zookeeper.write_as_admin(paths.delete_topic(moving.topic), b"")
        yield 0.2
        for down in downs:
            down.close()
        yield lambda: all(self._held(each, anew) is not None for each in replicas)

    def news_meanwhile(self, fault: Fault, undone: ExitStack) -> Script:
        """A broker cannot read a new topic's settings, and the leader ends while its answer to that is under way."""
        yield lambda: bool(self._known())
        ruler = self._ruler()
        if ruler is None:
            return
        first, second = fault.chance().sample([each for each in self._world.hosts if each != ruler], 2)
        agent = f"agent-{second}"
        cut = undone.enter_context(self._trouble_zookeeper([agent], there=True, back=True))
        self._world.zk_links[agent].reset()
        undone.enter_context(self._trouble(second, ruler, Trouble(extra_us=SECOND_US)))
        partition = TopicPartition(f"unread-{fault.at_us}", 0)
        self._write_topic(partition, [first, second])
        yield lambda: self._is_told(second, partition)
        self._expire(first)
        yield lambda: self._isr(partition) == (second,)
        self._spared = second
        yield 0.5
        cut.close()
        yield 0.3

    def _is_told(self, broker: BrokerId, partition: TopicPartition) -> bool:
        """Whether what a broker shall do about a partition is on its way, or the answer is."""
        controller = self._ruling()
        term = None if controller is None else controller._term
        if term is None or not isinstance(term.channels, ControllerChannelManager):
            return False
        channel = term.channels._channels.get(broker)
        return channel is not None and partition in channel.sender.desired._in_flight

    def _lose_reply(self, path: str, process: str) -> None:
        """Whoever creates this znode does not hear that it has."""
        link = self._world.zk_links[process]

        def look(commit: Commit) -> None:
            if any(write.kind == "create" and write.path == path for write in commit.writes):
                link.lose_next_reply()

        self._world.zookeeper.on_commit(look)

    def _write_topic(self, partition: TopicPartition, replicas: list[BrokerId]) -> None:
        """Somebody writes the znode of a topic of one partition."""
        assignment = ReplicaAssignment(tuple(replicas))
        topic = TopicAssignment(partition.topic, {partition.partition: assignment}, None, ZkVersion(0), 0)
        self._stage.note("admin", "topic %s is written", partition.topic)
        self._world.zookeeper.write_as_admin(paths.topic(partition.topic), znodes.encode_topic(topic))

    def _ask(self, moves: dict[TopicPartition, tuple[BrokerId, ...]]) -> None:
        data = znodes.encode_asked_moves(moves.items())
        self._world.zookeeper.write_as_admin(paths.REASSIGN_PARTITIONS, data)

    def _remove(self, path: str) -> None:
        for name in self._world.zookeeper.children(path):
            self._remove(f"{path}/{name}")
        self._world.zookeeper.delete_as_admin(path)
