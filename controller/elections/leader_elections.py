"""Leader elections on request, by the longest log, and for balance.

On request: through Kafka's ElectLeaders, or in /admin/preferred_replica_election; error codes per partition are
Kafka's. For balance: leadership is given back to preferred replicas where a broker leads too little of its own, looked
at by a timer that belongs to the term. Source: KIP-183, KIP-460, Kafka's auto.leader.rebalance; KAFKA-9866 (only who is
in sync is tried), KAFKA-10149 (a reassignment elsewhere does not matter).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from regency.controller.events import ControllerState, Notification, OfTerm, Request
from regency.controller.machines.inquiries import LogsUnheard
from regency.controller.reassignment.requests import finish
from regency.controller.state.context import ControllerContext
from regency.controller.state.election import ElectionKind
from regency.controller.state.states import PartitionState
from regency.controller.store.reassignments import read_preferred_election, remove_preferred_election
from regency.controller.term import Term
from regency.model.crash_points import crash_point
from regency.model.ids import NO_LEADER, BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode

logger = logging.getLogger(__name__)

NAMED = 10
"""So many partitions are named in a line of the log."""


class ElectionType(Enum):
    """What kind of election is asked for; numbers are Kafka's."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionOutcome(msgspec.Struct, frozen=True):
    """What became of one partition, and who leads it now; -1 for none."""

    partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    leader: BrokerId = NO_LEADER


@dataclass(eq=False)
class ElectLeaders(Request[tuple[ElectionOutcome, ...]]):
    """Elect leaders for these partitions, in this order; None for all that need it, which alone are answered."""

    election: ElectionType
    partitions: tuple[TopicPartition, ...] | None

    state = ControllerState.MANUAL_LEADER_BALANCE
    cause = "elect_leaders"


class ElectionsAsked(Notification):
    """/admin/preferred_replica_election changed."""

    state = ControllerState.MANUAL_LEADER_BALANCE
    cause = "preferred_election_znode"


def elect_leaders(term: Term, event: ElectLeaders) -> tuple[ElectionOutcome, ...]:
    """Elect, and answer for each partition. Where it must be asked first who has the longest log, answer later."""
    context = term.context
    wanted = list(context.partitions()) if event.partitions is None else list(dict.fromkeys(event.partitions))
    refused = {each: refusal for each in wanted if (refusal := _refusal(context, each, event.election)) is not None}
    electable = [each for each in wanted if each not in refused]
    if event.partitions is None:
        wanted = electable
    if event.election is ElectionType.PREFERRED:
        failed = hand_back(term, electable)
        return _outcomes(term, wanted, refused, failed, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    crash_point("controller.elections.before_unclean")
    failed = term.partitions.handle(electable, PartitionState.ONLINE, ElectionKind.OFFLINE, unclean=True)
    unavailable = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if failed:
        term.defer(event)
        term.inquiries.when_over(
            failed, lambda: term.answer(event, _outcomes(term, wanted, refused, failed, unavailable))
        )
    return _outcomes(term, wanted, refused, failed, unavailable)


def hand_back(term: Term, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
    """Let the preferred replicas lead, all in one batch. Returns why, for those that do not."""
    crash_point("controller.elections.before_preferred")
    failed = term.partitions.handle(partitions, PartitionState.ONLINE, ElectionKind.PREFERRED)
    crash_point("controller.elections.after_preferred")
    return failed


def on_elections_asked(term: Term) -> None:
    """Elect preferred replicas for what /admin/preferred_replica_election names, then remove it.

    It is removed in any case, as it was read: one that is written meanwhile is looked at again.
    """
    asked = read_preferred_election(term.store.access)
    if asked is None:
        return
    outcomes = [_refusal(term.context, each, ElectionType.PREFERRED) for each in asked.partitions]
    electable = [each for each, refusal in zip(asked.partitions, outcomes, strict=True) if refusal is None]
    failed = hand_back(term, electable)
    refused = {each.partition: each.message for each in outcomes if each is not None and each.error in _TO_REPORT}
    _report({**refused, **failed})
    term.decisions.note_each(
        (str(partition), "asked for its preferred leader", "not elected", why)
        for partition, why in {**refused, **failed}.items()
    )
    remove_preferred_election(term.store.access, asked)


_TO_REPORT = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)


def _refusal(context: ControllerContext, partition: TopicPartition, election: ElectionType) -> ElectionOutcome | None:
    """Why there is no election; None where one is needed."""
    replicas = context.assignment(partition).replicas
    if not replicas:
        why = "The partition does not exist."
        return ElectionOutcome(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
    if context.is_queued_for_deletion(partition.topic):
        why = f"Topic '{partition.topic}' is being deleted."
        return ElectionOutcome(partition, ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    leader = context.leader(partition)
    if election is ElectionType.PREFERRED and leader == replicas[0]:
        why = f"The preferred replica {leader} leads already."
        return ElectionOutcome(partition, ErrorCode.ELECTION_NOT_NEEDED, why, leader)
    if election is ElectionType.UNCLEAN and _is_led(context, partition):
        why = f"{leader} leads, and is live."
        return ElectionOutcome(partition, ErrorCode.ELECTION_NOT_NEEDED, why, leader)
    return None


def _outcomes(
    term: Term,
    wanted: Iterable[TopicPartition],
    refused: Mapping[TopicPartition, ElectionOutcome],
    failed: Mapping[TopicPartition, str],
    unavailable: ErrorCode,
) -> tuple[ElectionOutcome, ...]:
    """What became of each, as it stands now. One that failed at first may have been elected for since."""
    context = term.context
    outcomes = []
    for partition in wanted:
        leader = context.leader(partition)
        if partition in refused:
            outcomes.append(refused[partition])
        elif not context.assignment(partition).replicas:
            gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            outcomes.append(ElectionOutcome(partition, gone, "The partition does not exist any more."))
        elif partition not in failed or (
            unavailable is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE and _is_led(context, partition)
        ):
            outcomes.append(ElectionOutcome(partition, leader=leader))
        else:
            stays = "No leader" if leader == NO_LEADER else f"Broker {leader} leads on"
            outcomes.append(ElectionOutcome(partition, unavailable, f"{stays}: {failed[partition]}.", leader))
    return tuple(outcomes)


def _is_led(context: ControllerContext, partition: TopicPartition) -> bool:
    return context.partition_state(partition) is PartitionState.ONLINE


def _report(failed: Mapping[TopicPartition, str]) -> None:
    for partition, why in list(failed.items())[:NAMED]:
        logger.warning("no preferred election for %s: %s", partition, why)
    if len(failed) > NAMED:
        logger.warning("no preferred election for %d partitions more", len(failed) - NAMED)


ASK_AGAIN_MS = 5_000
"""From an inquiry in vain to the next one: the network between two processes may have healed unnoticed."""


def end_inquiries(term: Term, partitions: Sequence[TopicPartition]) -> None:
    """End these inquiries: by a member of the ISR if one has come, else by the longest log, if it is still allowed."""
    waiting = [each for each in partitions if not term.context.is_being_deleted(each.topic)]
    if waiting:
        crash_point("controller.unclean.before_elections")
        term.partitions.handle(waiting, PartitionState.ONLINE, ElectionKind.LONGEST_LOG)
        crash_point("controller.unclean.after_elections")
        finish(term, waiting)  # of one created by this all replicas are in sync: nothing more is heard of it
    ended = [term.context.inquiries.pop(partition, None) for partition in partitions]
    if any(inquiry.unheard for inquiry in ended if inquiry) and term.partitions.lacks_states(waiting):
        term.queue.put_later(LogsUnheard(), ASK_AGAIN_MS)


FIRST_CHECK_MS = 5_000
"""How long after it began a controller looks first."""


class LeaderBalanceDue(OfTerm):
    """It is time to look whether leaders are where they are preferred."""

    state = ControllerState.AUTO_LEADER_BALANCE
    cause = "leader_balance"


class Imbalance(msgspec.Struct):
    """Of the partitions that prefer one broker: how many there are, and which of those it does not lead."""

    preferring: int = 0
    led_elsewhere: list[TopicPartition] = []

    @property
    def ratio(self) -> float:
        """Share of its own that a broker does not lead, from 0 to 1."""
        return len(self.led_elsewhere) / self.preferring if self.preferring else 0.0


def imbalances(context: ControllerContext) -> dict[BrokerId, Imbalance]:
    """By preferred broker. Topics being deleted do not count, nor do partitions that never had a leader."""
    found: dict[BrokerId, Imbalance] = {}
    for name, entry in context.topics.items():
        if context.is_queued_for_deletion(name):
            continue
        for number, assignment in entry.partitions():
            leadership = entry.leadership[number]
            if leadership is None or not assignment.replicas:
                continue
            preferred = assignment.replicas[0]
            of_broker = found.get(preferred)
            if of_broker is None:
                of_broker = found[preferred] = Imbalance()
            of_broker.preferring += 1
            if leadership.leader_and_isr.leader != preferred:
                of_broker.led_elsewhere.append(TopicPartition(name, number))
    return found


def to_give_back(context: ControllerContext, *, percentage: int) -> list[TopicPartition]:
    """The partitions to elect the preferred replica for: of brokers that lack more than `percentage` of their own.

    Only those whose preferred replica can lead at once, and which are not being reassigned.
    """
    chosen = []
    for broker, imbalance in sorted(imbalances(context).items()):
        if imbalance.ratio * 100 > percentage:
            chosen += [each for each in imbalance.led_elsewhere if _can_lead(context, broker, each)]
    return chosen


def begin_balancing(term: Term) -> None:
    """Look for the first time in a while, if the settings want it at all."""
    if term.settings.auto_leader_rebalance_enable:
        term.queue.put_later(LeaderBalanceDue(term.epoch), FIRST_CHECK_MS)


def on_leader_balance_due(term: Term, _event: LeaderBalanceDue) -> None:
    """Give back what is due, in one batch, and look again later."""
    term.queue.put_later(LeaderBalanceDue(term.epoch), term.settings.leader_imbalance_check_interval_seconds * 1000)
    chosen = to_give_back(term.context, percentage=term.settings.leader_imbalance_per_broker_percentage)
    if not chosen:
        return
    crash_point("controller.balance.before_elections")
    failed = hand_back(term, chosen)
    logger.info("gave %d partitions back to their preferred leaders, %d not", len(chosen) - len(failed), len(failed))


def _can_lead(context: ControllerContext, preferred: BrokerId, partition: TopicPartition) -> bool:
    return (
        preferred in context.isr(partition)
        and preferred not in context.unsure_members(partition)
        and context.is_online(preferred, partition)
        and not context.assignment(partition).is_reassigning
    )
