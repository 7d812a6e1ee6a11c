"""Elections of the replica with the longest log, once those that live have said how far theirs go, or are silent."""

from __future__ import annotations

from collections.abc import Sequence

from regency.controller.election import ElectionKind
from regency.controller.inquiries import InquiriesDue, LogEndsTold, LogsUnheard
from regency.controller.states import PartitionState
from regency.controller.term import Term
from regency.model.crash_points import crash_point
from regency.model.ids import TopicPartition

ASK_AGAIN_MS = 5_000
"""From an inquiry in vain to the next one: the network between two processes may have healed unnoticed."""


def on_log_ends_told(term: Term, event: LogEndsTold) -> None:
    """Elect for the partitions of which all is known by this answer."""
    _elect(term, term.inquiries.take_in(event.ends))


def on_inquiries_due(term: Term, _event: InquiriesDue) -> None:
    """Elect by what is known for the partitions that have waited long enough."""
    _elect(term, term.inquiries.overdue())


def _elect(term: Term, partitions: Sequence[TopicPartition]) -> None:
    """End these inquiries: by a member of the ISR if one has come, else by the longest log, if it is still allowed."""
    waiting = [each for each in partitions if not term.context.is_being_deleted(each.topic)]
    if waiting:
        crash_point("controller.unclean.before_elections")
        term.partitions.handle(waiting, PartitionState.ONLINE, ElectionKind.LONGEST_LOG)
        crash_point("controller.unclean.after_elections")
    ended = [term.context.inquiries.pop(partition, None) for partition in partitions]
    if any(inquiry.unheard for inquiry in ended if inquiry) and term.partitions.lacks_states(waiting):
        term.queue.put_later(LogsUnheard(), ASK_AGAIN_MS)


def on_logs_unheard(term: Term) -> None:
    """Ask again about partitions that wait for the log of a replica that was silent."""
    term.partitions.ask_again()
