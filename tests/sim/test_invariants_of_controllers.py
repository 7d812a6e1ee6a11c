"""Every rule of controllers, and of who obeys them, fires where it is broken."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from simulation.cluster.controller import Leave
from simulation.judging.controller_rules import Obedience, Rule, check_decided
from simulation.judging.invariants import InvariantBroken
from simulation.judging.story import STATE, TP, Story

from regency.broker_agent.control.metadata_cache import EMPTY
from regency.controller.controller import View
from regency.controller.topics.creation import CreateTopics
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2 as pb


@pytest.fixture
def story() -> Story:
    told = Story()
    told.begin()
    return told


def obedient(story: Story) -> tuple[SimpleNamespace, Obedience]:
    gate = SimpleNamespace(controller_epoch=1, _controller=BrokerId(1), _broker_epoch=1, _seq=1)
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
    request = pb.StopReplicaRequest(header=pb.Header(controller_id=1, controller_epoch=1, broker_epoch=-1))
    refused = pb.ControlResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH, controller_epoch=2)
    obedience.answered(request, pb.ControlResponse(controller_epoch=1))
    story.end_session(story.controller)
    obedience.answered(request, refused)
    with pytest.raises(InvariantBroken, match="deposed-refused"):
        agent.on_control(request, pb.ControlResponse(controller_epoch=2))


def test_a_request_for_an_earlier_incarnation_that_is_carried_out_is_found(story: Story) -> None:
    story.end_session(story.agents[3])
    registered = story.rules.last_epoch(BrokerId(3))
    agent, _ = obedient(story)

    def do(broker_epoch: int, error: ErrorCode = ErrorCode.NONE) -> None:
        header = pb.Header(controller_id=1, controller_epoch=1, broker_epoch=broker_epoch)
        agent.on_control(pb.StopReplicaRequest(header=header), pb.ControlResponse(controller_epoch=1, error_code=error))

    do(registered, ErrorCode.STALE_BROKER_EPOCH)
    do(registered + 5)
    do(registered + 7)
    for earlier in (registered + 5, registered):
        with pytest.raises(InvariantBroken, match="incarnation-refused"):
            do(earlier)


@pytest.mark.parametrize(
    ("error", "sender", "controller_epoch", "incarnation", "found"),
    [
        (ErrorCode.STALE_CONTROLLER_EPOCH, 1, 1, 0, False),
        (ErrorCode.STALE_CONTROLLER_EPOCH, 1, 2, 0, True),
        (ErrorCode.STALE_CONTROLLER_EPOCH, 2, 2, 0, False),
        (ErrorCode.STALE_CONTROLLER_EPOCH, 1, 3, 0, False),
        (ErrorCode.STALE_BROKER_EPOCH, 1, 2, -1, False),
        (ErrorCode.STALE_BROKER_EPOCH, 1, 2, 0, True),
        (ErrorCode.STALE_BROKER_EPOCH, 1, 2, 1, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 1, 2, 0, False),
    ],
)
def test_an_agent_that_refuses_who_is_in_office_and_speaks_to_its_incarnation_is_found(
    story: Story, error: ErrorCode, sender: int, controller_epoch: int, incarnation: int, found: bool
) -> None:
    """`incarnation` counts from the one as which it is registered."""
    story.end_session(story.agents[3])
    agent, _ = obedient(story)
    story.register(3)
    story.end_session(story.controller)
    story.win(1, story.session(), epoch=2)
    registered = story.rules.last_epoch(BrokerId(3))
    header = pb.Header(controller_id=sender, controller_epoch=controller_epoch, broker_epoch=registered + incarnation)
    answer = pb.ControlResponse(controller_epoch=2, broker_epoch=9_000, error_code=error)
    with pytest.raises(InvariantBroken, match="refused-is-older") if found else nullcontext():
        agent.on_control(pb.UpdateMetadataRequest(header=header), answer)


@pytest.mark.parametrize(("asked", "found"), [(3, False), (4, True), (5, True)], ids=["older", "equal", "newer"])
@pytest.mark.parametrize("is_stop", [False, True], ids=["LeaderAndIsr", "StopReplica"])
def test_a_replica_that_fences_what_is_not_older_than_it_is_found(
    story: Story, asked: int, found: bool, is_stop: bool
) -> None:
    agent, _ = obedient(story)
    agent.logs = None
    header = pb.Header(controller_id=1, controller_epoch=1, broker_epoch=-1)
    other = pb.PartitionErrors(topic="red", partition=[0], error_code=[ErrorCode.UNKNOWN_SERVER_ERROR])
    fenced = pb.PartitionErrors(
        topic="blue", partition=[1], error_code=[ErrorCode.FENCED_LEADER_EPOCH], leader_epoch=[4]
    )
    other.leader_epoch.append(0)
    answer = pb.ControlResponse(controller_epoch=1, topics=[other, fenced])
    request: pb.StopReplicaRequest | pb.LeaderAndIsrRequest
    if is_stop:
        stops = pb.StopPartitions(topic="blue", partition=[0, 1], leader_epoch=[9, asked])
        request = pb.StopReplicaRequest(header=header, topics=[stops])
    else:
        states = pb.PartitionStates(topic="blue", partition=[0, 1], leader_epoch=[9, asked], zk_version=[0, 0])
        request = pb.LeaderAndIsrRequest(header=header, topics=[states])
    with pytest.raises(InvariantBroken, match="refused-is-older") if found else nullcontext():
        agent.on_control(request, answer)


def test_a_controller_that_asks_for_what_is_older_than_before_is_found(story: Story) -> None:
    agent, _ = obedient(story)
    agent.logs = None

    def ask(controller_epoch: int, leader_epoch: int, version: int, topic_id: bytes = b"1") -> None:
        states = pb.PartitionStates(
            topic="blue", topic_id=topic_id, partition=[0], leader_epoch=[leader_epoch], zk_version=[version]
        )
        header = pb.Header(controller_id=1, controller_epoch=controller_epoch, broker_epoch=-1)
        agent.on_control(
            pb.LeaderAndIsrRequest(header=header, topics=[states]),
            pb.ControlResponse(controller_epoch=controller_epoch),
        )

    ask(1, 3, 5)
    ask(1, 3, 5)
    ask(1, 3, 6)
    ask(1, 4, 7)
    ask(1, 0, 0, topic_id=b"2")
    ask(2, 3, 6)
    for leader_epoch, version in ((3, 5), (2, 9)):
        with pytest.raises(InvariantBroken, match="newest-is-asked"):
            ask(2, leader_epoch, version)


def test_requests_that_overtake_each_other_are_found(story: Story) -> None:
    agent, obedience = obedient(story)
    gate = agent.service._gate
    for controller_epoch, broker_epoch, seq in ((1, 1, 2), (1, 2, 1), (1, 2, 5)):
        gate.controller_epoch, gate._broker_epoch, gate._seq = controller_epoch, broker_epoch, seq
        obedience.look()
    gate._seq = 4
    with pytest.raises(InvariantBroken, match="requests-in-order"):
        obedience.look()


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
    inner = SimpleNamespace(view=View(), _term=None)
    controller = SimpleNamespace(controller=inner, session=None, leaves=[], unanswered={})
    rule = Rule(BrokerId(2), controller, story.rules)  # type: ignore[arg-type]
    rule.look()
    controller.controller.view = View(ruling=True, epoch=ControllerEpoch(1))
    with pytest.raises(InvariantBroken, match="rules-what-it-won"):
        rule.look()
    story.end_session(story.controller)
    story.win(2, story.session())
    controller.controller.view = View(ruling=True, epoch=ControllerEpoch(2))
    rule.look()


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


def test_a_controller_that_rules_by_what_another_session_has_won_is_found(story: Story) -> None:
    for session_id, found in ((0, False), (story.rules.winning_sessions[1], False), (77, True)):
        controller = ruling(story)
        controller.session.session_id = session_id
        rule = Rule(BrokerId(1), controller, story.rules)  # type: ignore[arg-type]
        with pytest.raises(InvariantBroken, match="rules-what-it-won") if found else nullcontext():
            rule.look()


@pytest.mark.parametrize(
    ("epoch", "is_idle", "found"),
    [(0, True, True), (0, False, False), (1, True, False)],
    ids=["its term is over", "it is not done", "its term lasts"],
)
def test_a_caller_that_is_left_waiting_is_found(story: Story, epoch: int, is_idle: bool, found: bool) -> None:
    controller = ruling(story)
    rule = Rule(BrokerId(1), controller, story.rules)  # type: ignore[arg-type]
    controller.unanswered[CreateTopics((), validate_only=False)] = epoch
    controller.idle = is_idle
    with pytest.raises(InvariantBroken, match="callers-answered: controller 1") if found else nullcontext():
        rule.look()
    controller.unanswered.clear()
    rule.look()


@pytest.mark.parametrize("older", [False, True])
def test_a_controller_that_knows_who_had_gone_before_it_won_is_found(story: Story, older: bool) -> None:
    registered = {broker: story.rules.last_epoch(BrokerId(broker)) for broker in (1, 2, 3)}
    story.end_session(story.agents[2])
    story.end_session(story.agents[3])
    story.register(3)
    story.end_session(story.controller)
    story.win(1, story.session())
    known = {1: registered[1], 3: registered[3] if older else story.rules.last_epoch(BrokerId(3))}
    controller = ruling(story)
    controller.session = None
    controller.controller.view = View(ruling=True, epoch=ControllerEpoch(2), brokers=known)  # type: ignore[arg-type]
    rule = Rule(BrokerId(1), controller, story.rules)  # type: ignore[arg-type]
    with pytest.raises(InvariantBroken, match="term-begins-anew") if older else nullcontext():
        rule.look()


def test_a_broker_that_is_let_leave_as_its_former_self_asked_is_found(story: Story) -> None:
    controller = ruling(story)
    rule = Rule(BrokerId(1), controller, story.rules)  # type: ignore[arg-type]
    rule.look()
    for asked_as, found in ((7, False), (6, True), (8, True)):
        controller.leaves.append(Leave(BrokerId(3), BrokerEpoch(asked_as), known_as=BrokerEpoch(7)))
        with pytest.raises(InvariantBroken, match="leavers-asked") if found else nullcontext():
            rule.look()
        assert not controller.leaves


def test_a_leader_elected_while_it_leaves_is_found(story: Story) -> None:
    controllers = {BrokerId(1): ruling(story, 1, 3)}
    story.decide(story.state(1, 1, 1, 2))
    check_decided(story.rules, controllers, story.facts)  # type: ignore[arg-type]
    story.decide(story.state(2, 2, 1, 2))
    check_decided(story.rules, controllers, story.facts)  # type: ignore[arg-type]
    story.decide(story.state(1, 3, 1, 2))
    with pytest.raises(InvariantBroken, match="leavers-not-elected"):
        check_decided(story.rules, controllers, story.facts)  # type: ignore[arg-type]


def test_who_leaves_when_that_is_decided_is_not_among_those_who_could_be_asked(story: Story) -> None:
    story.decide(story.state(1, 1, 1, 2))
    facts = story.facts.of(TP)
    facts.askable = frozenset(map(BrokerId, (2, 3)))
    check_decided(story.rules, {BrokerId(1): ruling(story, 1, 3)}, story.facts)  # type: ignore[dict-item]
    assert facts.askable == {2}


def test_a_decision_written_over_what_it_was_not_made_on_is_found(story: Story) -> None:
    controllers = {BrokerId(1): ruling(story)}
    for known, found in ((0, False), (1, False), (1, True)):
        held = SimpleNamespace(leader_and_isr=SimpleNamespace(zk_version=known))
        controllers[BrokerId(1)].controller._term.context.leadership = lambda _, held=held: held
        story.decide(story.state(1, story.version(STATE) + 1, 1, 2))
        with pytest.raises(InvariantBroken, match="decided-on-what-stands") if found else nullcontext():
            check_decided(story.rules, controllers, story.facts)  # type: ignore[arg-type]
