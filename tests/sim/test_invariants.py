"""Every rule of what may stand in ZooKeeper fires where it is broken, and nowhere in what controllers and agents do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from uuid import UUID

import pytest
from simulation.judging.controller_rules import Obedience, Rule
from simulation.judging.facts import Facts
from simulation.judging.invariants import INVARIANTS, InvariantBroken, broken
from simulation.judging.zookeeper_rules import GONE_US, ZookeeperRules
from simulation.zookeeper.model import Model
from simulation.zookeeper.sessions import Session

from regency.broker_agent.metadata import EMPTY
from regency.controller.controller import View
from regency.model import znode_paths as paths
from regency.model import znodes
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicAssignment
from regency.model.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2 as pb
from regency.runtime.zk_session import Check, Create, Delete, Op, SetData

TOPIC = "blue"
TP = TopicPartition(TOPIC, 0)
STATE = paths.partition_state(TP)
ID, OTHER_ID = TopicId(UUID(int=1)), TopicId(UUID(int=2))


class Story:
    """The model of ZooKeeper, watched by the rules, and what controllers and agents do there."""

    def __init__(self) -> None:
        self.now_us = 0
        self.facts = Facts()
        self.rules = ZookeeperRules(self.facts, lambda: self.now_us)
        self.model = Model()
        self.model.on_commit(self.rules.on_commit)
        self.admin = self.session()
        for path in ("/consumers", *paths.PERSISTENT_PARENTS[1:], paths.CONTROLLER_EPOCH):
            self.multi(self.admin, Create(path, b"0" if path == paths.CONTROLLER_EPOCH else b""))

    def session(self) -> Session:
        return self.model.open_session(3_000, 0)[1]

    def multi(self, session: Session, *ops: Op) -> None:
        _, results = self.model.multi(session, ops)
        assert all(result.error == 0 for result in results), [result.error for result in results]

    def version(self, path: str) -> int:
        return self.model.tree.nodes[path].version

    def fence(self) -> Check:
        return Check(paths.CONTROLLER_EPOCH, self.version(paths.CONTROLLER_EPOCH))

    def win(self, broker: int, session: Session, *, epoch: int | None = None) -> None:
        won = self.rules.controller_epoch + 1 if epoch is None else epoch
        data = znodes.encode_controller(BrokerId(broker), timestamp_ms=0)
        version = self.version(paths.CONTROLLER_EPOCH)
        self.multi(
            session,
            Create(paths.CONTROLLER, data, ephemeral=True),
            SetData(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(ControllerEpoch(won)), version),
        )

    def register(self, broker: int) -> Session:
        session = self.session()
        self.multi(session, Create(paths.broker(BrokerId(broker)), b"", ephemeral=True))
        return session

    def topic(self, *replicas: int, topic_id: TopicId | None = ID) -> bytes:
        assignment = ReplicaAssignment(tuple(map(BrokerId, replicas)))
        return znodes.encode_topic(TopicAssignment(TOPIC, {0: assignment}, topic_id))

    def state(self, leader: int, epoch: int, *isr: int, controller_epoch: int | None = None) -> bytes:
        decided = LeaderAndIsr(BrokerId(leader), LeaderEpoch(epoch), tuple(map(BrokerId, isr)))
        ruling = self.rules.controller_epoch if controller_epoch is None else controller_epoch
        return znodes.encode_state(LeaderIsrAndControllerEpoch(decided, ControllerEpoch(ruling)))

    def begin(self) -> None:
        """Three brokers, a controller, and a topic led by 1 in leader epoch 0."""
        self.agents = {broker: self.register(broker) for broker in (1, 2, 3)}
        self.controller = self.session()
        self.win(1, self.controller)
        self.multi(self.controller, self.fence(), Create(paths.topic(TOPIC), self.topic(1, 2, 3)))
        self.multi(self.controller, self.fence(), Create(paths.topic_partitions(TOPIC)))
        self.multi(
            self.controller,
            self.fence(),
            Create(paths.topic_partition(TP)),
            Create(STATE, self.state(1, 0, 1, 2, 3)),
        )

    def decide(self, data: bytes) -> None:
        """The controller writes the state."""
        self.multi(self.controller, self.fence(), SetData(STATE, data, self.version(STATE)))

    def change_isr(self, broker: int, data: bytes) -> None:
        """A leader writes the state."""
        check = Check(paths.broker(BrokerId(broker)), None)
        self.multi(self.agents[broker], check, SetData(STATE, data, self.version(STATE)))

    def end_session(self, session: Session) -> None:
        self.model.close_session(session)


@pytest.fixture
def story() -> Story:
    told = Story()
    told.begin()
    return told


def test_what_controllers_and_agents_do_breaks_nothing(story: Story) -> None:
    story.change_isr(1, story.state(1, 0, 1, 2))
    story.change_isr(1, story.state(1, 0, 1, 2, 3))
    story.end_session(story.agents[1])
    story.decide(story.state(2, 1, 2, 3))
    story.end_session(story.controller)
    story.controller = story.session()
    story.win(2, story.controller)
    story.decide(story.state(3, 2, 3))
    story.end_session(story.agents[3])
    story.decide(story.state(-1, 3, 3))
    story.agents[3] = story.register(3)
    story.decide(story.state(3, 4, 3))
    story.agents[1] = story.register(1)
    story.change_isr(3, story.state(3, 4, 3, 1))
    story.multi(story.controller, story.fence(), SetData(paths.topic(TOPIC), story.topic(1, 3), 0))
    story.multi(story.agents[1], Create(paths.isr_change_prefix(), b"{}", sequential=True))
    listed = story.model.tree.names(paths.ISR_CHANGE_NOTIFICATION)
    story.multi(story.controller, story.fence(), Delete(f"{paths.ISR_CHANGE_NOTIFICATION}/{listed[0]}", None))
    assert story.facts.of(TP).leader_changes == 2
    assert not story.facts.excused(TP)
    assert set(story.rules.changed) == {TP}


def test_a_deposed_controller_may_race_again(story: Story) -> None:
    story.multi(story.controller, Delete(paths.CONTROLLER, 0))
    story.win(1, story.controller)
    story.decide(story.state(2, 1, 1, 2, 3))


def test_a_topic_may_be_made_anew(story: Story) -> None:
    fence = story.fence()
    for path in (STATE, paths.topic_partition(TP), paths.topic_partitions(TOPIC), paths.topic(TOPIC)):
        story.multi(story.controller, fence, Delete(path, None))
    story.multi(story.controller, fence, Create(paths.topic(TOPIC), story.topic(3, 2, topic_id=OTHER_ID)))
    story.multi(story.controller, fence, Create(paths.topic_partitions(TOPIC)))
    story.multi(story.controller, fence, Create(paths.topic_partition(TP)), Create(STATE, story.state(3, 0, 3, 2)))
    state = story.rules.state(TP)
    assert state is not None and state.leader == 3
    assert story.rules.by_id.keys() == {ID, OTHER_ID}


def race_alone(story: Story) -> None:
    story.end_session(story.controller)
    story.multi(story.session(), Create(paths.CONTROLLER, znodes.encode_controller(BrokerId(2), timestamp_ms=0)))


def race_past(story: Story) -> None:
    story.end_session(story.controller)
    story.win(2, story.session(), epoch=3)


def write_deposed(story: Story) -> None:
    deposed = story.controller
    story.multi(deposed, Delete(paths.CONTROLLER, 0))
    story.win(2, story.session())
    story.multi(deposed, SetData(paths.topic(TOPIC), story.topic(1, 2, 3), 0))


def lose_version(story: Story) -> None:
    story.rules.topics[TOPIC].states[0].version += 1
    story.decide(story.state(2, 1, 1, 2, 3))


def lead_in_two_epochs(story: Story) -> None:
    story.rules.topics[TOPIC].leaders[0][1] = BrokerId(3)
    story.decide(story.state(2, 1, 1, 2, 3))


def forget_epoch(story: Story) -> None:
    story.decide(story.state(2, 5, 1, 2, 3))
    story.multi(story.controller, story.fence(), Delete(STATE, None))
    story.multi(story.controller, story.fence(), Create(STATE, story.state(1, 0, 1)))


def join_unregistered(story: Story) -> None:
    story.change_isr(1, story.state(1, 0, 1, 2))
    story.end_session(story.agents[3])
    story.now_us += GONE_US + 1
    story.change_isr(1, story.state(1, 0, 1, 2, 3))


def write_as_another(story: Story) -> None:
    story.multi(story.agents[2], SetData(STATE, story.state(1, 0, 1), 0))


def write_unregistered(story: Story) -> None:
    story.end_session(story.agents[1])
    story.multi(story.session(), SetData(STATE, story.state(1, 0, 1), 0))


def move_topic_id(story: Story) -> None:
    story.multi(story.admin, SetData(paths.topic(TOPIC), story.topic(1, 2, 3, topic_id=OTHER_ID), 0))


def take_from_the_isr(story: Story) -> None:
    story.multi(story.controller, story.fence(), SetData(paths.topic(TOPIC), story.topic(1, 2), 0))


def forge_broker_epoch(story: Story) -> None:
    story.rules._last_epochs[BrokerId(4)] = 10**6
    story.register(4)


PLANTED: list[tuple[str, Callable[[Story], None]]] = [
    ("leader-in-isr", lambda story: story.decide(story.state(1, 1, 2, 3))),
    ("isr-assigned", lambda story: story.decide(story.state(1, 1, 1, 4))),
    ("isr-assigned", lambda story: story.decide(story.state(-1, 1))),
    ("isr-assigned", take_from_the_isr),
    ("one-leader-per-epoch", lead_in_two_epochs),
    ("leader-epoch-grows", forget_epoch),
    ("election-raises-epoch", lambda story: story.decide(story.state(1, 0, 1, 2))),
    ("state-epoch-grows", lambda story: story.decide(story.state(2, 1, 1, 2, 3, controller_epoch=0))),
    ("state-epoch-current", lambda story: story.decide(story.state(2, 1, 1, 2, 3, controller_epoch=2))),
    ("versions-count", lose_version),
    ("controller-epoch-won", race_alone),
    ("controller-epoch-won", race_past),
    ("controller-epoch-won", lambda story: story.multi(story.admin, SetData(paths.CONTROLLER_EPOCH, b"7", 1))),
    ("controller-fenced", write_deposed),
    ("controller-fenced", lambda story: story.multi(story.controller, SetData(STATE, story.state(2, 1, 1, 2, 3), 0))),
    ("controller-fenced", lambda story: story.multi(story.controller, Delete(STATE, None))),
    ("state-writer", write_as_another),
    ("state-writer", write_unregistered),
    ("isr-change-keeps-leader", lambda story: story.change_isr(1, story.state(1, 1, 1, 2))),
    ("isr-change-keeps-leader", lambda story: story.change_isr(1, story.state(1, 0, 1, 2, controller_epoch=2))),
    ("one-leader-per-epoch", lambda story: story.change_isr(1, story.state(2, 0, 1, 2))),
    ("isr-joins-registered", join_unregistered),
    ("topic-ids-stay", move_topic_id),
    ("broker-epochs-grow", forge_broker_epoch),
]


@pytest.mark.parametrize(("name", "plant"), PLANTED)
def test_what_must_not_stand_in_zookeeper_is_found(story: Story, name: str, plant: Callable[[Story], None]) -> None:
    with pytest.raises(InvariantBroken) as found:
        plant(story)
    assert found.value.name == name


def test_a_leader_out_of_sync_is_a_fault_unless_the_topic_allows_it(story: Story) -> None:
    story.decide(story.state(1, 1, 1))
    with pytest.raises(InvariantBroken, match="clean-elections"):
        story.decide(story.state(2, 2, 2))
    allowing = Story()
    allowing.facts.unclean_topics.add(TOPIC)
    allowing.begin()
    allowing.decide(allowing.state(1, 1, 1))
    allowing.decide(allowing.state(2, 2, 2))
    assert allowing.facts.of(TP).unclean_elections == 1
    assert allowing.facts.excused(TP)


def test_who_has_just_gone_may_still_join_an_isr(story: Story) -> None:
    story.change_isr(1, story.state(1, 0, 1, 2))
    story.end_session(story.agents[3])
    story.now_us += GONE_US
    story.change_isr(1, story.state(1, 0, 1, 2, 3))


# What excuses a loss


def test_crashes_that_lose_data_excuse_a_loss_once_too_many_are_not_repaired(story: Story) -> None:
    story.facts.min_insync[TOPIC] = 2
    story.facts.lossy_crash(BrokerId(2))
    assert not story.facts.excused(TP)
    story.decide(story.state(1, 1, 1, 3))
    story.change_isr(1, story.state(1, 1, 1, 3, 2))
    story.facts.lossy_crash(BrokerId(3))
    assert not story.facts.excused(TP), "the first was repaired"
    story.facts.lossy_crash(BrokerId(1))
    assert story.facts.excused(TP)


def test_a_lossy_crash_of_the_whole_isr_excuses_a_loss(story: Story) -> None:
    story.facts.min_insync[TOPIC] = 2
    story.facts.lossy_crash(BrokerId(1))
    story.decide(story.state(1, 1, 1))
    assert story.facts.excused(TP)
    assert story.facts.allowed()[TP]


# Controllers and who obeys them


def obedient(story: Story) -> tuple[SimpleNamespace, Obedience]:
    gate = SimpleNamespace(controller_epoch=1, _controller=BrokerId(1))
    agent = SimpleNamespace(
        broker_id=BrokerId(3), service=SimpleNamespace(_gate=gate), metadata=SimpleNamespace(_view=EMPTY)
    )
    obedience = Obedience(agent, story.rules)  # type: ignore[arg-type]
    obedience.look()
    return agent, obedience


def snapshot(controller_epoch: int) -> object:
    return SimpleNamespace(controller_epoch=controller_epoch)


def test_an_agent_obeys_winners_in_order(story: Story) -> None:
    agent, obedience = obedient(story)
    story.end_session(story.controller)
    story.win(2, story.session())
    agent.service._gate.controller_epoch, agent.service._gate._controller = 2, BrokerId(2)
    agent.metadata._view = snapshot(2)
    obedience.look()
    agent.service._gate.controller_epoch = 1
    with pytest.raises(InvariantBroken, match="deposed-refused"):
        obedience.look()


def test_a_request_of_a_deposed_controller_that_is_carried_out_is_found(story: Story) -> None:
    agent, obedience = obedient(story)
    request = pb.StopReplicaRequest(header=pb.Header(controller_id=1, controller_epoch=1))
    refused = pb.ControlResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH, controller_epoch=2)
    obedience.answered(request, pb.ControlResponse(controller_epoch=1))
    obedience.answered(request, refused)
    with pytest.raises(InvariantBroken, match="deposed-refused"):
        agent.on_control(request, pb.ControlResponse(controller_epoch=2))


def test_an_agent_that_obeys_who_has_not_won_is_found(story: Story) -> None:
    agent, obedience = obedient(story)
    agent.service._gate.controller_epoch = 2
    with pytest.raises(InvariantBroken, match="obeyed-won"):
        obedience.look()


def test_metadata_of_a_deposed_controller_is_found(story: Story) -> None:
    agent, obedience = obedient(story)
    agent.metadata._view = snapshot(1)
    obedience.look()
    agent.metadata._view = snapshot(0)
    with pytest.raises(InvariantBroken, match="metadata-holds"):
        obedience.look()


def test_a_controller_that_rules_without_having_won_is_found(story: Story) -> None:
    controller = SimpleNamespace(controller=SimpleNamespace(view=View()))
    rule = Rule(BrokerId(2), controller, story.rules)  # type: ignore[arg-type]
    rule.look()
    controller.controller.view = View(ruling=True, epoch=ControllerEpoch(1))
    with pytest.raises(InvariantBroken, match="rules-what-it-won"):
        rule.look()
    story.end_session(story.controller)
    story.win(2, story.session())
    controller.controller.view = View(ruling=True, epoch=ControllerEpoch(2))
    rule.look()


# The table


def test_names_are_stable_words_and_every_planted_one_is_in_the_table() -> None:
    assert all(name == name.lower() and " " not in name for name in INVARIANTS)
    assert {name for name, _ in PLANTED} <= INVARIANTS.keys()
    with pytest.raises(KeyError):
        raise broken("no-such-name", "")
