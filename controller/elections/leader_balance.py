"""Automatic leader rebalance: give leadership back to preferred replicas where a broker leads too little of its own.

Looked at from time to time, by a timer that belongs to the term. Source: Kafka's auto.leader.rebalance; KAFKA-9866
(only who is in sync is tried), KAFKA-10149 (a reassignment elsewhere does not matter).
"""

from __future__ import annotations

import logging

import msgspec

from regency.controller.elections.leader_elections import elect_preferred
from regency.controller.events import ControllerState, OfTerm
from regency.controller.state.context import ControllerContext
from regency.controller.term import Term
from regency.model.crash_points import crash_point
from regency.model.ids import BrokerId, TopicPartition

logger = logging.getLogger(__name__)

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
    if term.config.auto_leader_rebalance:
        term.queue.put_later(LeaderBalanceDue(term.epoch), FIRST_CHECK_MS)


def on_leader_balance_due(term: Term, _event: LeaderBalanceDue) -> None:
    """Give back what is due, in one batch, and look again later."""
    term.queue.put_later(LeaderBalanceDue(term.epoch), term.config.leader_imbalance_check_interval_ms)
    chosen = to_give_back(term.context, percentage=term.config.leader_imbalance_percentage)
    if not chosen:
        return
    crash_point("controller.balance.before_elections")
    failed = elect_preferred(term, chosen)
    logger.info("gave %d partitions back to their preferred leaders, %d not", len(chosen) - len(failed), len(failed))


def _can_lead(context: ControllerContext, preferred: BrokerId, partition: TopicPartition) -> bool:
    leadership = context.leadership(partition)
    return (
        leadership is not None
        and preferred in leadership.leader_and_isr.isr
        and preferred not in context.unsure_members(partition)
        and context.is_online(preferred, partition)
        and not context.assignment(partition).is_reassigning
    )
