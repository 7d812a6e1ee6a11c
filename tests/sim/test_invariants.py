"""The rules of what stands in ZooKeeper, of controllers and of agents that obey them: each fires where it is broken,
and none in what controllers and agents do.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from simulation.cluster.controller import Leave
from simulation.judging.controller_rules import Obedience, Rule, check_decided
from simulation.judging.invariants import INVARIANTS, InvariantBroken, broken
from simulation.judging.story import ID, OTHER_ID, STATE, TOPIC, TP, Story
from simulation.judging.zookeeper_rules import GONE_US

from regency.broker_agent.control.metadata_cache import EMPTY
from regency.controller.controller import View
from regency.controller.topics.creation import CreateTopics
from regency.model import znodes
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb
from regency.runtime.zookeeper.session import Create, Delete, SetData

Plant = Callable[[Story], None]
OLD_CONTROLLER, OLD_BROKER = ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH


@pytest.fixture
def story() -> Story:
    told = Story()
    told.begin()
    return told


def is_found(invariant: str, plant: Callable[[], object]) -> None:
    with pytest.raises(InvariantBroken) as found:
        plant()
    assert found.value.name == invariant


# In ZooKeeper


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
    story.multi(story.controller, Delete(paths.CONTROLLER, 0))  # deposed, it races again
    story.win(1, story.controller)
    story.decide(story.state(3, 5, 3))


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


def join_unregistered(story: Story, gone_us: int = GONE_US + 1) -> None:
    story.change_isr(1, story.state(1, 0, 1, 2))
    story.end_session(story.agents[3])
    story.now_us += gone_us
    story.change_isr(1, story.state(1, 0, 1, 2, 3))


def restart_2(story: Story) -> None:
    story.end_session(story.agents[2])
    story.register(2)


def hide_a_restart(story: Story) -> None:
    restart_2(story)
    story.change_isr(1, story.state(1, 0, 1, 2))


def keep_who_restarted(story: Story) -> None:
    restart_2(story)
    story.decide(story.state(1, 1, 1, 2))


def move_topic_id(story: Story) -> None:
    story.multi(story.admin, SetData(paths.topic(TOPIC), story.topic(1, 2, 3, topic_id=OTHER_ID), 0))


def elect_uncleanly(story: Story) -> None:
    story.decide(story.state(1, 1, 1))
    story.decide(story.state(2, 2, 2))


def forge_broker_epoch(story: Story) -> None:
    story.rules._last_epochs[BrokerId(4)] = 10**6
    story.register(4)


PLANTED: list[tuple[str, Plant]] = [
    ("leader-in-isr", lambda story: story.decide(story.state(1, 1, 2, 3))),
    ("isr-assigned", lambda story: story.decide(story.state(1, 1, 1, 4))),
    ("one-leader-per-epoch", lead_in_two_epochs),
    ("leader-epoch-grows", forget_epoch),
    ("election-raises-epoch", lambda story: story.decide(story.state(1, 0, 1, 2))),
    ("state-epoch-grows", lambda story: story.decide(story.state(2, 1, 1, 2, 3, controller_epoch=0))),
    ("state-epoch-current", lambda story: story.decide(story.state(2, 1, 1, 2, 3, controller_epoch=2))),
    ("versions-count", lose_version),
    ("controller-epoch-won", race_alone),
    ("controller-epoch-won", lambda story: story.multi(story.admin, SetData(paths.CONTROLLER_EPOCH, b"7", 1))),
    ("controller-fenced", write_deposed),
    ("controller-fenced", lambda story: story.multi(story.controller, Delete(STATE, None))),
    ("state-writer", lambda story: story.multi(story.agents[2], SetData(STATE, story.state(1, 0, 1), 0))),
    ("isr-change-keeps-leader", lambda story: story.change_isr(1, story.state(1, 1, 1, 2))),
    ("isr-joins-registered", join_unregistered),
    ("isr-change-hides-nobody", hide_a_restart),
    ("decision-hides-nobody", keep_who_restarted),
    ("clean-elections", elect_uncleanly),
    ("topic-ids-stay", move_topic_id),
    ("broker-epochs-grow", forge_broker_epoch),
]


@pytest.mark.parametrize(("invariant", "plant"), PLANTED)
def test_what_must_not_stand_in_zookeeper_is_found(story: Story, invariant: str, plant: Plant) -> None:
    is_found(invariant, lambda: plant(story))


def test_a_topic_may_allow_unclean_elections_and_who_has_just_gone_may_join() -> None:
    story = Story()
    story.facts.unclean_topics.add(TOPIC)
    story.begin()
    join_unregistered(story, GONE_US)
    elect_uncleanly(story)
    assert story.facts.of(TP).unclean_elections == 1
    assert story.facts.excused(TP)


@pytest.mark.parametrize("repaired", [True, False])
def test_losses_excuse_one_another_only_while_they_are_not_repaired(story: Story, repaired: bool) -> None:
    story.facts.min_insync[TOPIC] = 2
    story.facts.lossy_crash(BrokerId(2))
    assert not story.facts.excused(TP)
    story.decide(story.state(1, 1, 1, 3))
    if repaired:  # else it joins as it was before its crash
        story.facts.registered(BrokerId(2))
    story.change_isr(1, story.state(1, 1, 1, 3, 2))
    story.facts.lossy_crash(BrokerId(3))
    assert story.facts.excused(TP) is not repaired
    story.facts.lossy_crash(BrokerId(1))
    assert story.facts.excused(TP)


def test_who_registered_before_an_isr_that_lost_something_can_be_asked(story: Story) -> None:
    story.facts.min_insync[TOPIC] = 2
    story.decide(story.state(1, 1, 1))
    assert story.facts.of(TP).askable is None, "who is in sync has everything"
    story.facts.lossy_crash(BrokerId(1))
    for broker in (1, 3):
        story.end_session(story.agents[broker])
        story.agents[broker] = story.register(broker)
    story.decide(story.state(1, 2, 1))
    assert story.facts.of(TP).askable == {1, 2}
    assert not story.facts.excused(TP), "that it leads loses nothing: it may have all that is promised"
    facts = story.facts.of(TP)
    check_decided(story.rules, {BrokerId(1): ruling(story, 2)}, story.facts)  # type: ignore[dict-item]
    assert facts.askable == {1}, "who leaves when that is decided cannot"
    story.decide(story.state(1, 3, 1))
    assert facts.askable == {1}, "the leader never began and nothing was lost since: nobody is asked again"
    story.facts.lossy_crash(BrokerId(1))
    story.decide(story.state(1, 4, 1))
    assert facts.askable == {1, 2}


# At agents


class Obedient:
    """Broker 3's agent, which obeys controller 1 in epoch 1, and the rules that look at it."""

    def __init__(self, story: Story) -> None:
        self.gate = SimpleNamespace(controller_epoch=1, _controller=BrokerId(1), _broker_epoch=1, _seq=1)
        service, self.metadata = SimpleNamespace(_gate=self.gate), SimpleNamespace(_view=EMPTY)
        self.agent = SimpleNamespace(
            broker_id=BrokerId(3), service=service, metadata=self.metadata, logs=None, session=None
        )
        self.rule = Obedience(self.agent, story.rules)  # type: ignore[arg-type]
        self.rule.look()

    def look(self, **gate: int) -> None:
        vars(self.gate).update(gate)
        self.rule.look()

    def does(
        self,
        *,
        by: int = 1,
        epoch: int = 1,
        broker_epoch: int = -1,
        error: ErrorCode = ErrorCode.NONE,
        newest: int = 1,
        topics: list[object] | None = None,
        **request: object,
    ) -> None:
        """Answer a request of controller `by`, a LeaderAndIsr where `states` are given; `newest`: its epoch now."""
        header = pb.Header(controller_id=by, controller_epoch=epoch, broker_epoch=broker_epoch)
        answer = pb.ControlResponse(controller_epoch=newest, broker_epoch=9_000, error_code=error, topics=topics)
        asked = request.pop("states", None)
        sent = pb.LeaderAndIsrRequest(header=header, topics=asked) if asked else pb.StopReplicaRequest(header=header)
        self.agent.on_control(sent, answer)


def depose(story: Story, broker: int = 2) -> None:
    story.end_session(story.controller)
    story.win(broker, story.session())


def states(leader_epoch: int, version: int, topic_id: bytes = b"1") -> list[pb.PartitionStates]:
    one = pb.PartitionStates(topic="blue", topic_id=topic_id, partition=[0], zk_version=[version])
    one.leader_epoch.append(leader_epoch)
    return [one]


def test_an_agent_obeys_winners_and_requests_in_order(story: Story) -> None:
    agent = Obedient(story)
    for broker_epoch, seq in ((1, 2), (2, 1), (2, 5)):
        agent.look(_broker_epoch=broker_epoch, _seq=seq)
    is_found("requests-in-order", lambda: agent.look(_seq=4))
    is_found("obeyed-won", lambda: Obedient(story).look(controller_epoch=2))
    depose(story)
    agent = Obedient(story)
    agent.metadata._view = SimpleNamespace(controller_epoch=2)
    agent.look(controller_epoch=2, _controller=BrokerId(2))
    is_found("deposed-refused", lambda: agent.look(controller_epoch=1))
    agent = Obedient(story)
    agent.metadata._view = SimpleNamespace(controller_epoch=1)
    agent.look()
    agent.metadata._view = SimpleNamespace(controller_epoch=0)
    is_found("metadata-holds", agent.look)


def test_what_a_deposed_controller_or_an_earlier_incarnation_was_told_is_not_carried_out(story: Story) -> None:
    agent = Obedient(story)
    agent.does()
    depose(story)
    agent.does(error=OLD_CONTROLLER, newest=2)
    is_found("deposed-refused", lambda: agent.does(newest=2))
    agent = Obedient(story)
    registered = story.rules.last_epoch(BrokerId(3))
    agent.does(broker_epoch=registered + 5)
    agent.does(broker_epoch=registered + 7)
    is_found("incarnation-refused", lambda: agent.does(broker_epoch=registered + 5))


@pytest.mark.parametrize(
    ("error", "sender", "controller_epoch", "incarnation", "found"),
    [
        (OLD_CONTROLLER, 1, 1, 0, False),
        (OLD_CONTROLLER, 1, 2, 0, True),
        (OLD_CONTROLLER, 2, 2, 0, False),
        (OLD_CONTROLLER, 1, 3, 0, False),
        (OLD_BROKER, 1, 2, -1, False),
        (OLD_BROKER, 1, 2, 0, True),
        (OLD_BROKER, 1, 2, 1, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 1, 2, 0, False),
    ],
)
def test_who_is_in_office_and_speaks_to_an_agents_incarnation_is_not_refused(
    story: Story, error: ErrorCode, sender: int, controller_epoch: int, incarnation: int, found: bool
) -> None:
    """`incarnation` counts from the one as which it is registered."""
    story.end_session(story.agents[3])
    agent = Obedient(story)
    agent.agent.session = SimpleNamespace(session_id=story.register(3).id)
    depose(story, 1)
    spoken_to = story.rules.last_epoch(BrokerId(3)) + incarnation

    def refuse() -> None:
        agent.does(by=sender, epoch=controller_epoch, broker_epoch=spoken_to, error=error, newest=2)

    is_found("refused-is-older", refuse) if found else refuse()
    if error is OLD_BROKER:
        agent.agent.session.session_id += 1  # of the one that registered it has not heard, or it has lost it
        refuse()


def test_only_what_is_older_is_fenced_and_nothing_older_than_before_is_asked(story: Story) -> None:
    agent = Obedient(story)
    fenced = pb.PartitionErrors(
        topic="blue", partition=[0], error_code=[ErrorCode.FENCED_LEADER_EPOCH], leader_epoch=[4]
    )
    agent.does(states=states(3, 0), topics=[fenced])
    is_found("refused-is-older", lambda: agent.does(states=states(4, 0), topics=[fenced]))
    agent = Obedient(story)
    for epoch, version in ((3, 5), (3, 5), (3, 6), (4, 7)):
        agent.does(states=states(epoch, version))
    agent.does(states=states(0, 0, b"2"))
    agent.does(epoch=2, newest=2, states=states(3, 6))
    is_found("newest-is-asked", lambda: agent.does(epoch=2, newest=2, states=states(2, 9)))


# At controllers


def ruling(story: Story, *leaving: int) -> SimpleNamespace:
    """Broker 1's controller in epoch 1, whom these have asked to leave."""
    term = SimpleNamespace(
        epoch=1,
        store=SimpleNamespace(fence=SimpleNamespace(generation=1)),
        context=SimpleNamespace(shutting_down=set(map(BrokerId, leaving)), leadership=lambda _: None),
    )
    controller = SimpleNamespace(view=View(ruling=True, epoch=ControllerEpoch(1)), _term=term)
    session = SimpleNamespace(generation=1, session_id=story.rules.winning_sessions[1])
    return SimpleNamespace(controller=controller, session=session, leaves=[], unanswered={}, idle=True)


def looking(story: Story, controller: SimpleNamespace, broker: int = 1) -> Callable[[], None]:
    return Rule(BrokerId(broker), controller, story.rules).look  # type: ignore[arg-type]


def test_a_controller_rules_what_its_session_has_won(story: Story) -> None:
    inner = SimpleNamespace(view=View(), _term=None)
    look = looking(story, SimpleNamespace(controller=inner, session=None, leaves=[], unanswered={}), 2)
    look()
    inner.view = View(ruling=True, epoch=ControllerEpoch(1))
    is_found("rules-what-it-won", look)
    controller = ruling(story)
    looking(story, controller)()
    controller.session.session_id = 77
    is_found("rules-what-it-won", looking(story, controller))
    depose(story)
    inner.view = View(ruling=True, epoch=ControllerEpoch(2))
    look()


def test_a_term_that_is_over_leaves_nobody_waiting(story: Story) -> None:
    controller = ruling(story)
    look = looking(story, controller)
    asked = CreateTopics((), validate_only=False)
    for epoch, is_idle, found in ((0, False, False), (1, True, False), (0, True, True)):
        controller.unanswered[asked], controller.idle = epoch, is_idle
        is_found("callers-answered", look) if found else look()


@pytest.mark.parametrize("older", [False, True])
def test_a_term_begins_with_what_was_read_since_it_was_won(story: Story, older: bool) -> None:
    registered = {broker: story.rules.last_epoch(BrokerId(broker)) for broker in (1, 2, 3)}
    story.end_session(story.agents[2])
    story.end_session(story.agents[3])
    story.register(3)
    depose(story, 1)
    known = {1: registered[1], 3: registered[3] if older else story.rules.last_epoch(BrokerId(3))}
    controller = ruling(story)
    controller.session = None
    controller.controller.view = View(ruling=True, epoch=ControllerEpoch(2), brokers=known)  # type: ignore[arg-type]
    look = looking(story, controller)
    is_found("term-begins-anew", look) if older else look()


def test_a_broker_leaves_as_it_has_asked_itself_and_is_not_elected_meanwhile(story: Story) -> None:
    controller = ruling(story, 1, 3)
    look = looking(story, controller)
    for asked_as, found in ((7, False), (6, True), (8, True)):
        controller.leaves.append(Leave(BrokerId(3), BrokerEpoch(asked_as), known_as=BrokerEpoch(7)))
        is_found("leavers-asked", look) if found else look()
    for leader, epoch, found in ((1, 1, False), (2, 2, False), (1, 3, True)):
        story.decide(story.state(leader, epoch, 1, 2))
        check = lambda: check_decided(story.rules, {BrokerId(1): controller}, story.facts)  # type: ignore[dict-item]  # noqa: E731
        is_found("leavers-not-elected", check) if found else check()


def test_a_decision_is_written_over_what_it_was_made_on(story: Story) -> None:
    controller = ruling(story)
    for known, found in ((0, False), (1, False), (1, True)):
        held = SimpleNamespace(leader_and_isr=SimpleNamespace(zk_version=known))
        controller.controller._term.context.leadership = lambda _, held=held: held
        story.decide(story.state(1, story.version(STATE) + 1, 1, 2))
        check = lambda: check_decided(story.rules, {BrokerId(1): controller}, story.facts)  # type: ignore[dict-item]  # noqa: E731
        is_found("decided-on-what-stands", check) if found else check()


# The table


def test_names_are_stable_words() -> None:
    assert all(name == name.lower() and " " not in name for name in INVARIANTS)
    with pytest.raises(KeyError):
        raise broken("no-such-name", "")
