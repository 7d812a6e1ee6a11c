"""A cleaner in another process: jobs and answers as bytes, and the loop at the other end."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

import msgspec

from regency.broker_agent.log.cleaning.job import Cleaned, CleaningJob
from regency.broker_agent.log.errors import CleanerDied, Uncleanable


class Done(msgspec.Struct, frozen=True, tag=True):
    """The job is done."""

    cleaned: Cleaned


class NotDone(msgspec.Struct, frozen=True, tag=True):
    """It is not. `errno` is the operating system's; 0 where the log cannot be cleaned, and `reason` says why."""

    reason: str
    errno: int = 0
    path: str = ""


_ANSWER: Final = msgspec.msgpack.Decoder(Done | NotDone)
_JOB: Final = msgspec.msgpack.Decoder(CleaningJob)


class RemoteCleaner:
    """Has jobs done by whatever `run` sends them to, one at a time; it calls back with the answer, or None."""

    def __init__(self, run: Callable[[bytes, Callable[[bytes | None], None]], None]) -> None:
        self._run = run

    def clean(self, job: CleaningJob, done: Callable[[Cleaned | BaseException], None]) -> None:
        """As the port `Cleaner` of `log.directories` says."""

        def answered(answer: bytes | None) -> None:
            done(CleanerDied("The cleaner's process ended.") if answer is None else _outcome(answer))

        self._run(msgspec.msgpack.encode(job), answered)


def _outcome(answer: bytes) -> Cleaned | BaseException:
    decoded = _ANSWER.decode(answer)
    if isinstance(decoded, Done):
        return decoded.cleaned
    if decoded.errno:
        return OSError(decoded.errno, decoded.reason, decoded.path or None)
    return Uncleanable(decoded.reason)


def decode_job(content: bytes) -> CleaningJob:
    """The job of these bytes."""
    return _JOB.decode(content)


def encode_answer(outcome: Cleaned | OSError | Uncleanable) -> bytes:
    """The bytes of an outcome."""
    answer: Done | NotDone
    if isinstance(outcome, Cleaned):
        answer = Done(outcome)
    elif isinstance(outcome, OSError):
        reason = outcome.strerror or str(outcome)
        answer = NotDone(reason, outcome.errno or errno.EIO, str(outcome.filename or ""))
    else:
        answer = NotDone(outcome.message)
    return msgspec.msgpack.encode(answer)
