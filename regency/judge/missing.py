"""What cannot be judged, because a history that claims to be complete lacks the records to judge by.

A history claims to be complete by `Drained`, or by a final read of any partition. Then each partition, in the last life
of its topic, needs

- a final read, if a write to it was acknowledged with acks=1 or acks=all: nothing else tells whether it is lost;
- with `Drained`, a poll by a consumer session that went on after it, if the final read has records: nothing else tells
  whether consumers get them. A session goes on after `Drained` if it polls any partition then.
- with `Drained`, a poll by each consumer whose last session there went on after it and has only seeks.

Which partitions a consumer was assigned is not in a history but by its polls and seeks of them, so of a consumer that
has neither nothing is known, as long as another one polls the partition.
"""

from __future__ import annotations

from regency.judge.findings import Findings, Told
from regency.judge.log import sender_name
from regency.judge.operations import FinalRead, Outcome, Poll, Seek, Send
from regency.judge.parts import Part, Session
from regency.judge.table import Anomaly


def judge_missing(part: Part, findings: Findings) -> None:
    """Findings about acknowledged writes without a final read, and about records without consumers."""
    if not part.claims_complete:
        return
    if part.final is None:
        sends = (send for session in part.sends.values() for send in session)
        promised = [send for send in sends if send.outcome is Outcome.ACKNOWLEDGED and send.acks != 0]
        if promised:
            findings.add(Anomaly.UNJUDGED, (), None, _tell_no_final, part, promised)
    elif part.drained and part.final.high_watermark > part.final.log_start:
        _judge_consumers(part, part.final, findings)


def _judge_consumers(part: Part, final: FinalRead, findings: Findings) -> None:
    records = (final.log_start, final.high_watermark - 1)
    last_sessions = dict(sorted(part.polls))
    drained = [session for session in sorted(last_sessions.items()) if session in part.drained_sessions]
    silent = [each for each in drained if not any(isinstance(poll, Poll) for poll in part.polls[each])]
    for session in silent:
        findings.add(Anomaly.UNJUDGED, records, None, _tell_silent, part, session, records)
    if not drained:
        findings.add(Anomaly.UNJUDGED, records, None, _tell_unread, part, records)


def _tell_no_final(part: Part, promised: list[Send]) -> Told:
    first = min(promised, key=lambda send: (send.invoked_ms, send.client, send.session, send.number))
    return Told(
        f"{part.name} has no final read, though the history claims to be complete: whether its {len(promised)} "
        f"acknowledged writes are lost is not known; the first is {sender_name(first)}.",
        (first.value,),
        (first,),
    )


def _tell_unread(part: Part, records: tuple[int, int]) -> Told:
    return Told(
        f"{part.name} has records at offsets {records[0]} to {records[1]}, and no consumer session that went on after "
        "Drained has polled it: whether consumers saw them is not known."
    )


def _tell_silent(part: Part, session: Session, records: tuple[int, int]) -> Told:
    seeks: list[Poll | Seek] = part.polls[session]
    return Told(
        f"{part.name} has records at offsets {records[0]} to {records[1]}; {session[0]} (session {session[1]}) was "
        "assigned it and went on after Drained, but never polled it.",
        operations=tuple(seeks[-1:]),
    )
