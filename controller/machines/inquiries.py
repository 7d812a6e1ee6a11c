"""Which replica has the longest log: inquiries about partitions that may be led by one that was not in sync.

What an event leaves undecided is asked about when it is over, without waiting; the answers are events of their own. An
inquiry is over when all have answered, after 2 s, or as soon as its partition has a leader.
See docs/internals/architecture.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from regency.controller.channel.log_questions import ANSWER_WITHIN_MS, LogEnds
from regency.controller.events import ControllerState, Notification, OfTerm
from regency.controller.machines.partition_state_machine import PartitionStateMachine
from regency.controller.state.context import ControllerContext
from regency.controller.state.election import Inquiry
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.facts import Broker
from regency.model.ids import BrokerId, ControllerEpoch, TopicId, TopicPartition


class LogEndsTold(OfTerm):
    """A broker has said how far its logs go, or has not said it in time."""

    state = ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE
    cause = "unclean_election"

    def __init__(self, ends: LogEnds, epoch: ControllerEpoch) -> None:
        super().__init__(epoch)
        self.ends = ends


class InquiriesDue(OfTerm):
    """Inquiries about logs have taken long enough."""

    state = ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE
    cause = "unclean_election"


class LogsUnheard(Notification):
    """A replica that is live has not said how far its log goes, and nothing can be decided without it: ask again."""

    state = ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE
    cause = "unclean_election"


Ask = Callable[[Broker, dict[TopicPartition, TopicId]], None]


class Inquiries:
    """The inquiries of one controller epoch; they stand in its context."""

    def __init__(
        self,
        context: ControllerContext,
        partitions: PartitionStateMachine,
        *,
        ask: Ask,
        wake_in: Callable[[int], None],
        clock: Clock,
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._ask = ask
        self._wake_in = wake_in
        self._clock = clock
        self._waiting: list[tuple[list[TopicPartition], Callable[[], None]]] = []

    def when_over(self, partitions: Iterable[TopicPartition], then: Callable[[], None]) -> None:
        """Call `then` once no inquiry about any of these goes on, at the end of an event."""
        self._waiting.append((list(partitions), then))

    def end_event(self) -> None:
        """Ask about what the event that ends has left undecided; tell those whose inquiries are over."""
        asked = self._begin()
        if asked:
            crash_point("controller.inquiry.before_questions")
        for broker, about in sorted(asked.items()):
            self._ask(self._context.brokers[broker], about)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for partitions, then in waiting:
                left = [each for each in partitions if each in self._context.inquiries]
                if left:
                    self._waiting.append((left, then))
                else:
                    then()

    def take_in(self, answer: LogEnds) -> list[TopicPartition]:
        """Take in what a broker answered. Returns the partitions whose inquiry is complete by it."""
        complete = []
        for partition in answer.asked:
            inquiry = self._context.inquiries.get(partition)
            if inquiry is None or inquiry.asked.get(answer.broker) != answer.broker_epoch:
                continue
            inquiry.ends[answer.broker] = answer.ends.get(partition)
            if len(inquiry.ends) == len(inquiry.asked):
                complete.append(partition)
        return complete

    def overdue(self) -> list[TopicPartition]:
        """The partitions whose inquiry has taken long enough; asks to be woken for the others."""
        now = self._clock.monotonic_ms()
        due = [partition for partition, inquiry in self._context.inquiries.items() if inquiry.due_ms <= now]
        left = [inquiry.due_ms for inquiry in self._context.inquiries.values() if inquiry.due_ms > now]
        if left:
            self._wake_in(min(left) - now)
        return due

    def _begin(self) -> dict[BrokerId, dict[TopicPartition, TopicId]]:
        """Begin inquiries, or extend them to brokers that have come since. Returns who is to be asked about what."""
        context = self._context
        asked: dict[BrokerId, dict[TopicPartition, TopicId]] = {}
        due_ms = self._clock.monotonic_ms() + ANSWER_WITHIN_MS
        begun = False
        for partition, forced in self._partitions.choice.take_undecided().items():
            if partition not in context.leaderless:
                continue
            inquiry = context.inquiries.get(partition)
            if inquiry is None:
                inquiry = context.inquiries[partition] = Inquiry(due_ms)
                begun = True
            inquiry.forced = inquiry.forced or forced
            online = context.online(partition)
            for replica in context.assignment(partition).replicas:
                epoch = context.brokers[replica].epoch if replica in online else None
                if epoch is not None and inquiry.asked.get(replica) != epoch:
                    inquiry.asked[replica] = epoch
                    inquiry.ends.pop(replica, None)
                    asked.setdefault(replica, {})[partition] = context.topic_id(partition.topic)
        if begun:
            self._wake_in(ANSWER_WITHIN_MS)
        return asked
