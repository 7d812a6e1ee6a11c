"""Judges what producers were told against what was read: loss, offsets of acknowledgements, order and gaps of sends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from regency.judge.findings import Findings, Told
from regency.judge.log import ReadLog, judge_holes, reader_name, sender_name
from regency.judge.operations import ALL, Outcome, Poll, Send
from regency.judge.parts import Part
from regency.judge.table import Anomaly


def judge_sends(part: Part, log: ReadLog, findings: Findings) -> None:
    """Findings about sends, and about holes of the final read that no lost write explains."""
    acked = [send for session in part.sends.values() for send in session if send.offset >= 0]
    lost = [send for send in _missing(acked, log) if _is_lost(send, part, log)]
    lost += _missing(_acked_without_offset(part), log)
    superseded = _Superseded(part, log)
    lost = [send for send in lost if not superseded.excuses(send)]
    for send in _by_offset(lost):
        kind = Anomaly.LOST_WRITE if send.acks == ALL else Anomaly.LOST_LEADER_WRITE
        findings.add(kind, (send.offset,) if send.offset >= 0 else (), send, _tell_lost, part, log, send)
    apart = {send.value for send in lost}
    where = log.where
    moved = [send for send in acked if where.get(send.value, send.offset) != send.offset]
    for send in _by_offset(moved):
        if send.value not in apart and _is_misplaced(send, part, log):
            apart.add(send.value)
            place = log.where[send.value]
            findings.add(Anomaly.MISPLACED_WRITE, (send.offset, place), send, _tell_misplaced, part, log, send, place)
    _judge_shared(part, [send for send in acked if send.acks == ALL and send.value not in apart], findings)
    for session in part.sends.values():
        _judge_order(part, session, log, apart | {each.value for each in session if superseded.excuses(each)}, findings)
    judge_holes(part, [send.offset for send in lost], findings)


class _Superseded:
    """What compaction may have taken away: of each key everything before a record that is there, or a tombstone."""

    def __init__(self, part: Part, log: ReadLog) -> None:
        self._log = log
        self._newest: dict[str, int] = {}
        """Key to the highest offset of such a record."""
        present = log.final_values or frozenset()
        for session in part.sends.values() if part.compacted else ():
            for send in session:
                place = log.last_place(send.value, send.offset)
                if send.key and (send.value in present or (send.tombstone and send.offset >= 0)):
                    self._newest[send.key] = max(self._newest.get(send.key, place), place)

    def excuses(self, send: Send) -> bool:
        """Whether the send need not be there. Another record at its offset nothing excuses."""
        newest = self._newest.get(send.key)
        if newest is None or self._log.at.get(send.offset, send.value) != send.value:
            return False
        return send.value not in (self._log.final_values or ()) and (newest > send.offset or send.tombstone)


def _acked_without_offset(part: Part) -> list[Send]:
    """Acknowledged sends of unknown place, which a final read that reaches back to the first offset must have."""
    if part.final is None or part.final.log_start > 0:
        return []
    sends = (send for session in part.sends.values() for send in session if send.offset < 0 and send.acks != 0)
    return [send for send in sends if send.outcome is Outcome.ACKNOWLEDGED]


def _missing(acked: list[Send], log: ReadLog) -> Iterator[Send]:
    present = log.where.keys() if log.final_values is None else log.final_values
    return (send for send in acked if send.value not in present)


def _is_lost(send: Send, part: Part, log: ReadLog) -> bool:
    """Whether an acknowledged send that is not in the final read, or was never read, should be there.

    Below the final log start, or without a final read, only another record at its offset shows that it is lost.
    """
    if part.final is not None and send.offset >= part.final.log_start:
        return True
    return send.value not in log.where and send.offset in log.at


def _is_misplaced(send: Send, part: Part, log: ReadLog) -> bool:
    """Whether a send that was read elsewhere is not at the offset of its acknowledgement.

    Of a plain producer an earlier attempt may be read first, so it counts only where that offset has been read too;
    compaction may have taken away what nobody read there.
    """
    if log.stands_at(send.value, send.offset):
        return False
    is_final = part.final is not None and send.offset >= part.final.log_start and not part.compacted
    read = send.offset in log.at or is_final
    return read or send.idempotent


def _judge_shared(part: Part, acked: list[Send], findings: Findings) -> None:
    """Two writes acknowledged with acks=all at one offset, neither of which is known to be lost."""
    if len({send.offset for send in acked}) == len(acked):
        return
    first: dict[int, Send] = {}
    shared: set[int] = set()
    for send in _by_offset(acked):
        other = first.setdefault(send.offset, send)
        if other is not send and send.offset not in shared:
            shared.add(send.offset)
            findings.add(Anomaly.INCONSISTENT_OFFSET, (send.offset,), None, _tell_shared, part, other, send)


def _judge_order(part: Part, session: list[Send], log: ReadLog, apart: set[int], findings: Findings) -> None:
    """One producer session's sends against their places in the log.

    What a plain producer has no acknowledgement for may be written at any later time, so nothing need come after it.
    In a log that begins at 0 a session must begin with its first send: that one has not expired.
    """
    top: Send | None = None
    top_place = -1
    absent: list[Send] = []
    for send in session:
        if send.outcome is Outcome.FAILED or send.value in apart:
            continue
        acked = send.offset >= 0
        place = send.offset if acked else log.where.get(send.value)
        if place is None:
            if send.idempotent and send.value not in part.loose:
                absent.append(send)
            continue
        if top is not None and place < top_place:
            kind = _order_anomaly(send, acked and top.offset >= 0)
            findings.add(kind, (top_place, place), send, _tell_order, part, top, send, (top_place, place))
            continue
        if absent:
            if part.final is not None and part.final.log_start <= max(top_place, 0):
                places = (place,) if top is None else (top_place, place)
                for missing in absent:
                    findings.add(Anomaly.SKIPPED_SEND, places, missing, _tell_skipped, part, top, missing, send, places)
            absent = []
        if acked or send.idempotent:
            top, top_place = send, place


def _order_anomaly(send: Send, both_acked: bool) -> Anomaly:
    if both_acked:
        return Anomaly.NONMONOTONIC_SEND if send.idempotent else Anomaly.RETRY_NONMONOTONIC_SEND
    return Anomaly.REORDERED if send.idempotent else Anomaly.RETRY_REORDERED


def _by_offset(sends: Iterable[Send]) -> list[Send]:
    return sorted(sends, key=lambda send: (send.offset, send.value))


def _tell_lost(part: Part, log: ReadLog, send: Send) -> Told:
    acks = "all" if send.acks == ALL else str(send.acks)
    if send.offset < 0:
        return Told(
            f"{sender_name(send)} was acknowledged with acks={acks}, and the final read of {part.name} has it nowhere.",
            (send.value,),
            (send,),
        )
    instead = log.at.get(send.offset)
    readers = () if instead is None else log.readers(send.offset, instead, 1)
    polls = tuple(each for each in readers if isinstance(each, Poll))
    if instead == send.value:
        found = f"which {reader_name(readers[0])} still saw and the final read has not"
    elif instead is None:
        found = "and the final read has nothing there"
    else:
        found = f"where {reader_name(readers[0])} has value {instead}"
    return Told(
        f"{sender_name(send)} was acknowledged with acks={acks} at {part.name} offset {send.offset}, {found}.",
        (send.value,) if instead in (None, send.value) else (send.value, instead),
        (send, *polls),
    )


def _tell_skipped(part: Part, before: Send | None, send: Send, after: Send, places: tuple[int, ...]) -> Told:
    earlier = "nothing has expired" if before is None else f"send {before.number} is at offset {places[0]}"
    return Told(
        f"{part.name}: {sender_name(send)} is not in the log, though of the same idempotent session {earlier} and send "
        f"{after.number} is at offset {places[-1]}.",
        (send.value,),
        (send, after) if before is None else (before, send, after),
    )


def _tell_shared(part: Part, first: Send, second: Send) -> Told:
    return Told(
        f"{part.name} offset {first.offset} was acknowledged for {sender_name(first)} and for {sender_name(second)}.",
        (first.value, second.value),
        (first, second),
    )


def _tell_misplaced(part: Part, log: ReadLog, send: Send, place: int) -> Told:
    readers = log.readers(place, send.value, 1)
    return Told(
        f"{sender_name(send)} was acknowledged at {part.name} offset {send.offset}, and {reader_name(readers[0])} has "
        f"it at offset {place}.",
        (send.value,),
        (send, *(each for each in readers if isinstance(each, Poll))),
    )


def _tell_order(part: Part, top: Send, send: Send, places: tuple[int, int]) -> Told:
    return Told(
        f"{part.name}: {sender_name(send)} is at offset {places[1]}, before {sender_name(top)}, which the same session "
        f"sent earlier, at offset {places[0]}.",
        (top.value, send.value),
        (top, send),
    )
