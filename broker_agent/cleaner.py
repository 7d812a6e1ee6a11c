"""`python -m regency.broker_agent.cleaner`: the cleaner of an agent, its child. Not for people.

Jobs come on stdin and answers go to stdout, each behind four bytes of length. It ends when stdin does, in the middle of
a job too, and works with low priority. While it works it has a lock on the log directory: one that an earlier agent has
left behind for a moment is waited for.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import queue
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from regency.broker_agent.log.cleaning.cleaner import clean
from regency.broker_agent.log.cleaning.job import Cleaned, CleaningJob
from regency.broker_agent.log.cleaning.remote import decode_job, encode_answer
from regency.broker_agent.log.errors import Uncleanable
from regency.runtime.disk import OsDisk
from regency.runtime.supervise import die_with_parent

_LENGTH_BYTES: Final = 4
_NICER: Final = 5


def main() -> None:
    """Clean what is asked for until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the agent says when
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    die_with_parent()
    os.nice(_NICER)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_jobs, args=(jobs,), name="jobs", daemon=True).start()
    while True:
        answer = encode_answer(run(decode_job(jobs.get())))
        sys.stdout.buffer.write(len(answer).to_bytes(_LENGTH_BYTES, "big") + answer)
        sys.stdout.buffer.flush()


def _read_jobs(jobs: queue.SimpleQueue[bytes]) -> None:
    """Where the agent is gone nothing may be written to its directories any more."""
    with suppress(OSError):
        while True:
            length = sys.stdin.buffer.read(_LENGTH_BYTES)
            if len(length) < _LENGTH_BYTES:
                break
            jobs.put(sys.stdin.buffer.read(int.from_bytes(length, "big")))
    os._exit(0)


def run(job: CleaningJob) -> Cleaned | OSError | Uncleanable:
    """Do one job, no faster than it says."""
    try:
        lock = os.open(Path(job.directory).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _take_steps(job)
    except (OSError, Uncleanable) as error:
        return error
    finally:
        os.close(lock)


def _take_steps(job: CleaningJob) -> Cleaned:
    steps = clean(job, OsDisk())
    began, moved = time.monotonic(), 0
    while True:
        try:
            moved += next(steps)
        except StopIteration as end:
            cleaned: Cleaned = end.value
            return cleaned
        early = moved / job.bytes_per_second - (time.monotonic() - began)
        if early > 0:
            time.sleep(early)


if __name__ == "__main__":
    main()
