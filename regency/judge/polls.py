"""Judges what consumers saw in their order: positions that go back or jump, unread tails, ends that went back.

What is not judged, because Kafka does not promise it: a poll that gives less than an earlier one could have had. A new
leader serves only up to the high watermark it has learnt, and a deposed one what it had. A *listed end* does not go
back, however: a new leader answers OFFSET_NOT_AVAILABLE until its high watermark has reached its epoch's start
(KIP-207), and no earlier leader's high watermark is above that. So an end listed from a leader epoch is at least what
was listed or read from lower epochs at any time, or from the same epoch by an operation that completed before this one
was invoked; and it is above whatever the same broker acknowledged with acks=all before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from regency.judge.findings import Findings, Told
from regency.judge.log import ReadLog, reader_name, sender_name
from regency.judge.operations import ALL, UNKNOWN, ListedEnd, Poll, Seek, Send
from regency.judge.parts import Part
from regency.judge.table import Anomaly

Witness = ListedEnd | Poll | Send


def judge_polls(part: Part, log: ReadLog, findings: Findings) -> None:
    """Findings about consumers' sessions and about listed ends."""
    last_of_client: dict[str, Poll | None] = {}
    newest = _Newest(part, log)
    for (client, _), session in part.polls.items():
        last_of_client[client] = _Session(part, log, newest, findings).judge(session)
    _judge_tails(part, log, (last for last in last_of_client.values() if last is not None), findings)
    _judge_ends(part, findings)


class _Newest:
    """The last offset of each key of a compacted partition, as far as it is known."""

    def __init__(self, part: Part, log: ReadLog) -> None:
        self._log = log
        self._key_of: dict[int, str] = {}
        self._last: dict[str, int] = {}
        keyed = (send for session in part.sends.values() for send in session if send.key)
        for send in keyed if part.compacted else ():
            self._key_of[send.value] = send.key
            place = log.last_place(send.value, send.offset)
            self._last[send.key] = max(self._last.get(send.key, UNKNOWN), place)

    def excuses(self, begin: int, end: int) -> bool:
        """Whether who reads from `begin` may have no record below `end`: each that anybody read there has a later one
        of its key. Leaders are compacted at different times, so that others may have it all the same.
        """
        at = self._log.at
        offsets = range(begin, end) if end - begin <= len(at) else [each for each in at if begin <= each < end]
        known = ((offset, self._key_of.get(at[offset], "")) for offset in offsets if offset in at)
        return all(self._last.get(key, UNKNOWN) > offset for offset, key in known)


class _Session:
    """One consumer session on its way through the log."""

    def __init__(self, part: Part, log: ReadLog, newest: _Newest, findings: Findings) -> None:
        self._part = part
        self._log = log
        self._newest = newest
        self._findings = findings
        self._previous: Poll | None = None

    def judge(self, session: list[Poll | Seek]) -> Poll | None:
        """Judge the polls of the session in their order; the last one, if there is any."""
        expected = UNKNOWN
        last: Poll | None = None
        for poll in session:
            if isinstance(poll, Seek):
                expected, self._previous = poll.position, None
                continue
            if expected != UNKNOWN and poll.position != expected:
                self._step(poll, expected, poll.position, "starts at")
            cursor = poll.position
            for run in poll.runs:
                if run.offset != cursor:
                    self._step(poll, cursor, run.offset, "has a record of")
                cursor = max(cursor, run.end)
            if poll.next_position != cursor:
                self._step(poll, cursor, poll.next_position, "ends at")
            expected = poll.next_position
            self._previous = last = poll
        return last

    def _step(self, poll: Poll, expected: int, found: int, what: str) -> None:
        """An offset other than the one expected next."""
        if found < expected:
            self._add(Anomaly.NONMONOTONIC_POLL, poll, expected, found, f"{what} offset {found}, back from {expected}")
        elif found > self._part.log_start_by(poll.completed_ms) and not self._is_empty(expected, found):
            self._add(Anomaly.SKIPPED_POLL, poll, expected, found, f"{what} offset {found}, {expected} was next")

    def _is_empty(self, begin: int, end: int) -> bool:
        """Whether no record was there by the final read, or none had to be, as of a compacted partition."""
        if self._part.compacted and self._newest.excuses(begin, end):
            return True
        return self._log.final_has_none_of(begin, end)

    def _add(self, anomaly: Anomaly, poll: Poll, expected: int, found: int, what: str) -> None:
        polls = (poll,) if self._previous is None else (self._previous, poll)
        self._findings.add(anomaly, (expected, found), None, _tell_step, self._part, polls, what)


def _judge_tails(part: Part, log: ReadLog, last_polls: Iterable[Poll], findings: Findings) -> None:
    final = part.final
    if final is None:
        return
    for poll in last_polls:
        unread = poll.next_position, final.high_watermark
        if part.compacted and log.final_has_none_of(*unread):
            continue
        if (poll.client, poll.session) in part.drained_sessions and unread[0] < unread[1]:
            findings.add(
                Anomaly.UNREAD_TAIL,
                (poll.next_position, final.high_watermark - 1),
                None,
                _tell_tail,
                part,
                poll,
                final.high_watermark,
            )


def _judge_ends(part: Part, findings: Findings) -> None:
    if not part.ends:
        return
    floors: dict[int, tuple[int, Witness]] = {}
    ends = sorted(part.ends, key=lambda end: (end.invoked_ms, end.completed_ms, end.client, end.end))
    for index, floor, witness in _floors_by_epoch(part, ends):
        floors[index] = floor, witness
    for index, floor, witness in _floors_by_broker(part, ends):
        if index not in floors or floors[index][0] < floor:
            floors[index] = floor, witness
    for index in sorted(floors):
        floor, witness = floors[index]
        end = ends[index]
        if end.end < floor:
            findings.add(Anomaly.END_WENT_BACK, (end.end, floor), None, _tell_end, part, end, floor, witness)


def _floors_by_epoch(part: Part, ends: list[ListedEnd]) -> Iterator[tuple[int, int, Witness]]:
    """Index of each listed end with the highest end seen before it in leader epochs up to its own."""
    witnesses: dict[int, list[tuple[int, int, Witness]]] = {}
    for end in ends:
        if end.leader_epoch != UNKNOWN:
            witnesses.setdefault(end.leader_epoch, []).append((end.completed_ms, end.end, end))
    for session in part.polls.values():
        for poll in session:
            if isinstance(poll, Poll) and poll.runs and poll.leader_epoch != UNKNOWN:
                seen = max(run.end for run in poll.runs)
                witnesses.setdefault(poll.leader_epoch, []).append((poll.completed_ms, seen, poll))
    queries: dict[int, list[int]] = {}
    for index, end in enumerate(ends):
        if end.leader_epoch != UNKNOWN:
            queries.setdefault(end.leader_epoch, []).append(index)
    best: tuple[int, Witness] | None = None
    for epoch in sorted(witnesses):
        yield from _sweep(ends, queries.get(epoch, []), witnesses[epoch], best)
        best = _higher(best, max(witnesses[epoch], key=lambda witness: witness[1]))


def _floors_by_broker(part: Part, ends: list[ListedEnd]) -> Iterator[tuple[int, int, Witness]]:
    """Index of each listed end with the highest acknowledgement of acks=all that the same broker gave before."""
    queries: dict[int, list[int]] = {}
    for index, end in enumerate(ends):
        if end.leader != UNKNOWN:
            queries.setdefault(end.leader, []).append(index)
    witnesses: dict[int, list[tuple[int, int, Witness]]] = {}
    for session in part.sends.values():
        for send in session:
            if send.leader in queries and send.acks == ALL and send.offset >= 0:
                witnesses.setdefault(send.leader, []).append((send.completed_ms, send.offset + 1, send))
    for leader in sorted(witnesses):
        yield from _sweep(ends, queries[leader], witnesses[leader], None)


def _sweep(
    ends: list[ListedEnd],
    queries: list[int],
    witnesses: list[tuple[int, int, Witness]],
    best: tuple[int, Witness] | None,
) -> Iterator[tuple[int, int, Witness]]:
    """For each query, in order of its invocation, the highest witness completed before it, or `best` if higher."""
    ordered = sorted(witnesses, key=lambda witness: witness[:2])
    next_witness = 0
    for index in queries:
        while next_witness < len(ordered) and ordered[next_witness][0] < ends[index].invoked_ms:
            best = _higher(best, ordered[next_witness])
            next_witness += 1
        if best is not None:
            yield index, *best


def _higher(best: tuple[int, Witness] | None, witness: tuple[int, int, Witness]) -> tuple[int, Witness]:
    return best if best is not None and best[0] >= witness[1] else witness[1:]


def _tell_step(part: Part, polls: tuple[Poll, ...], what: str) -> Told:
    return Told(f"{part.name}: {reader_name(polls[-1])} {what}.", operations=polls)


def _tell_tail(part: Part, poll: Poll, high_watermark: int) -> Told:
    return Told(
        f"{part.name}: the last poll of the run, {reader_name(poll)}, stopped at offset {poll.next_position}; the high "
        f"watermark is {high_watermark}.",
        operations=(poll,),
    )


def _tell_end(part: Part, end: ListedEnd, floor: int, witness: Witness) -> Told:
    if isinstance(witness, Poll):
        before = f"{reader_name(witness)} had read up to"
    elif isinstance(witness, Send):
        before = f"broker {witness.leader} had acknowledged {sender_name(witness)}, which makes it at least"
    else:
        before = f"{witness.client} ({witness.invoked_ms} to {witness.completed_ms} ms) had been told"
    return Told(
        f"{part.name}: {end.client} was told end {end.end} ({end.invoked_ms} to {end.completed_ms} ms, leader epoch "
        f"{end.leader_epoch}, broker {end.leader}), though {before} {floor}.",
        operations=(witness, end),
    )
