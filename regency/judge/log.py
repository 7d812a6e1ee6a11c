"""Puts together one partition's log from all that was read of it, and judges it by itself and by what was sent."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from regency.judge.findings import Findings, Told
from regency.judge.operations import FinalRead, HistoryMalformed, Outcome, Poll, Run, Send
from regency.judge.parts import Part
from regency.judge.table import Anomaly

MOST_VALUES: Final = 5
"""Values and offsets that one finding names."""


class ReadLog:
    """Everything that anybody read of a partition, as one log."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self.at: dict[int, int] = {}
        """Offset to value: the final read's where it has the offset, else that of the first reader."""
        self.conflicts: dict[int, dict[int, None]] = {}
        """Offset to the other values that were read there, in order of the readers."""
        self.records = 0
        """Records read, by whomever."""
        self.final_values: frozenset[int] | None = None
        if part.final is not None:
            for run in part.final.runs:
                self._enter(run)
            self.final_values = frozenset(self.at.values())
        for session in part.polls.values():
            for poll in session:
                if isinstance(poll, Poll):
                    for run in poll.runs:
                        self._enter(run)
        self.where = dict(zip(self.at.values(), self.at.keys(), strict=True))
        """Value to offset, the lowest one for a value that stands at several."""
        self.repeated: dict[int, list[int]] = {}
        """Value to all its offsets, for those that stand at several."""
        if self.conflicts or len(self.where) < len(self.at):
            self._find_repeated()

    def stands_at(self, value: int, offset: int) -> bool:
        """Whether a client read the value at the offset."""
        return self.at.get(offset) == value or offset in self.repeated.get(value, ())

    def final_has_none_of(self, begin: int, end: int) -> bool:
        """Whether the final read covers [begin, end) and has no record there."""
        final = self._part.final
        if final is None or begin < final.log_start or end > final.high_watermark:
            return False
        before_end = bisect_left(final.runs, end, key=lambda run: run.offset)
        return before_end == 0 or final.runs[before_end - 1].end <= begin

    def last_place(self, value: int, acknowledged: int) -> int:
        """The highest offset at which the value was read; else that of its acknowledgement."""
        return max(self.repeated.get(value, (self.where.get(value, acknowledged),)))

    def readers(self, offset: int, value: int, most: int = 2) -> tuple[Poll | FinalRead, ...]:
        """The first few who read the value there; looks through all polls, so only for findings that are shown."""
        found: list[Poll | FinalRead] = []
        final = self._part.final
        polls = (each for session in self._part.polls.values() for each in session if isinstance(each, Poll))
        for read in (*(() if final is None else (final,)), *polls):
            if any(run.offset <= offset < run.end and run.values[offset - run.offset] == value for run in read.runs):
                found.append(read)
            if len(found) == most:
                break
        return tuple(found)

    def _enter(self, run: Run) -> None:
        offsets = range(run.offset, run.end)
        self.records += len(offsets)
        known = tuple(map(self.at.get, offsets))
        if known == run.values:
            return
        if known.count(None) == len(known):
            self.at.update(zip(offsets, run.values, strict=True))
            return
        for offset, value, other in zip(offsets, run.values, known, strict=True):
            if other is None:
                self.at[offset] = value
            elif other != value:
                self.conflicts.setdefault(offset, {})[value] = None

    def _find_repeated(self) -> None:
        offsets: dict[int, list[int]] = {}
        for offset in sorted(self.at):
            offsets.setdefault(self.at[offset], []).append(offset)
        for offset in sorted(self.conflicts):
            for value in self.conflicts[offset]:
                offsets.setdefault(value, []).append(offset)
        self.where = {value: min(places) for value, places in offsets.items()}
        self.repeated = {value: sorted(places) for value, places in offsets.items() if len(places) > 1}


def sends_by_value(part: Part) -> dict[int, Send]:
    """The sends of a partition by value. Raises HistoryMalformed where two share one."""
    sends = {send.value: send for session in part.sends.values() for send in session}
    if len(sends) < sum(map(len, part.sends.values())):
        seen: set[int] = set()
        for session in part.sends.values():
            for send in session:
                if send.value in seen:
                    raise HistoryMalformed(f"value {send.value} was sent twice to {part.name}; make values unique.")
                seen.add(send.value)
    return sends


def judge_log(part: Part, log: ReadLog, sends: dict[int, Send], findings: Findings) -> None:
    """Findings about what was read: offsets with two values, values at two offsets, values never sent, holes."""
    for offset in sorted(log.conflicts):
        findings.add(Anomaly.INCONSISTENT_OFFSET, (offset,), None, _tell_conflict, part, log, offset)
    for value in sorted(log.repeated, key=lambda value: log.repeated[value]):
        send = sends.get(value)
        if send is not None and send.outcome is not Outcome.FAILED:
            kind = Anomaly.DUPLICATE if send.idempotent else Anomaly.RETRY_DUPLICATE
            places = tuple(log.repeated[value])
            findings.add(kind, places, send, _tell_duplicate, part, log, send, places)
    for value in sorted(log.where.keys() - sends.keys(), key=lambda value: (log.where[value], value)):
        offset = log.where[value]
        findings.add(Anomaly.PHANTOM, (offset,), None, _tell_phantom, part, log, value, offset)
    failed = [send for send in sends.values() if send.outcome is Outcome.FAILED and send.value in log.where]
    for send in sorted(failed, key=lambda send: log.where[send.value]):
        offset = log.where[send.value]
        findings.add(Anomaly.FAILED_WRITE_READ, (offset,), send, _tell_failed, part, log, send, offset)


def judge_holes(part: Part, lost_offsets: list[int], findings: Findings) -> None:
    """Findings about offsets that the final read lacks, but for holes in which an acknowledged write was lost.

    Of a compacted partition there are none: it has holes, and what should be there is known by the keys of what was
    acknowledged.
    """
    final = part.final
    if final is None or part.compacted:
        return
    lost = sorted(lost_offsets)
    expected, index = final.log_start, 0
    for begin, end in [*((run.offset, run.end) for run in final.runs), (final.high_watermark, final.high_watermark)]:
        while index < len(lost) and lost[index] < expected:
            index += 1
        if begin > expected and not (index < len(lost) and lost[index] < begin):
            findings.add(
                Anomaly.HOLE_IN_LOG, (expected, begin - 1), None, _tell_hole, part, final, (expected, begin - 1)
            )
        expected = max(expected, end)


def reader_name(read: Poll | FinalRead) -> str:
    """Who read and when, for a sentence."""
    if isinstance(read, FinalRead):
        return f"the final read at {read.completed_ms} ms"
    return f"{read.client} (session {read.session}, poll {read.number}, {read.invoked_ms} to {read.completed_ms} ms)"


def sender_name(send: Send) -> str:
    """Who sent what and when, for a sentence."""
    return (
        f"{send.client} (session {send.session}, send {send.number}, {send.invoked_ms} to {send.completed_ms} ms)'s "
        f"value {send.value}"
    )


def _read_by(log: ReadLog, offset: int, value: int) -> tuple[str, tuple[Poll, ...]]:
    readers = log.readers(offset, value, 1)
    return reader_name(readers[0]), tuple(each for each in readers if isinstance(each, Poll))


def _tell_hole(part: Part, final: FinalRead, hole: tuple[int, int]) -> Told:
    return Told(
        f"the final read of {part.name} has no record at offsets {hole[0]} to {hole[1]}, between log start "
        f"{final.log_start} and high watermark {final.high_watermark}."
    )


def _tell_conflict(part: Part, log: ReadLog, offset: int) -> Told:
    first, others = log.at[offset], list(log.conflicts[offset])[:MOST_VALUES]
    name, polls = _read_by(log, offset, first)
    other_name, other_polls = _read_by(log, offset, others[0])
    return Told(
        f"{part.name} offset {offset}: {name} read value {first}, {other_name} read value {others[0]}.",
        (first, *others),
        (*polls, *other_polls),
    )


def _tell_duplicate(part: Part, log: ReadLog, send: Send, places: tuple[int, ...]) -> Told:
    reads = [
        poll
        for place in places[:2]
        for poll in log.readers(place, send.value, 1)
        if isinstance(poll, Poll) and log.stands_at(send.value, place)
    ]
    kind = "idempotent" if send.idempotent else "plain"
    where = ", ".join(map(str, places[:MOST_VALUES]))
    return Told(
        f"{part.name}: {sender_name(send)}, of {kind} producer, stands at offsets {where}.",
        (send.value,),
        (send, *reads),
    )


def _tell_phantom(part: Part, log: ReadLog, value: int, offset: int) -> Told:
    name, polls = _read_by(log, offset, value)
    return Told(f"{part.name} offset {offset}: {name} read value {value}, which no client sent there.", (value,), polls)


def _tell_failed(part: Part, log: ReadLog, send: Send, offset: int) -> Told:
    name, polls = _read_by(log, offset, send.value)
    return Told(
        f"{part.name} offset {offset}: {name} read {sender_name(send)}, though that send failed for sure.",
        (send.value,),
        (send, *polls),
    )
