"""A child process that does one job at a time: bytes in, bytes out, each behind four bytes of length.

Started with the first job, ended when none has come for a while. Data loop only.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

logger = logging.getLogger(__name__)

CLEANER_COMMAND: Final = (
    sys.executable,
    *(["-P"] if sys.flags.safe_path else []),
    "-m",
    "regency.broker_agent.cleaner",
)

IDLE_S: Final = 60
"""After so long without a job the process ends."""

_LENGTH_BYTES: Final = 4


class JobChild:
    """Runs `command`. `post` runs something on the data loop, guarded."""

    def __init__(self, command: Sequence[str], post: Callable[[Callable[[], None]], None]) -> None:
        self._command = command
        self._post = post
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, where there is one."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    def run(self, job: bytes, done: Callable[[bytes | None], None]) -> None:
        """Have a job done, where none is under way; `done` gets the answer later, None where the process died at it."""
        if self._idle is not None:
            self._idle.cancel()
        self._task = asyncio.get_running_loop().create_task(self._do(job, done), name="job of a child")

    async def _do(self, job: bytes, done: Callable[[bytes | None], None]) -> None:
        answer: bytes | None = None
        try:
            answer = await self._ask(job)
            self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end)
        except (OSError, asyncio.IncompleteReadError) as error:
            status = await self.stop_process()
            logger.warning("%s ended (status %s) without an answer: %r", self._command[-1], status, error)
        self._post(lambda: done(answer))

    async def _ask(self, job: bytes) -> bytes:
        process = self._process
        if process is None or process.returncode is not None:
            pipe = asyncio.subprocess.PIPE
            process = self._process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(len(job).to_bytes(_LENGTH_BYTES, "big") + job)
        await process.stdin.drain()
        length = await process.stdout.readexactly(_LENGTH_BYTES)
        return await process.stdout.readexactly(int.from_bytes(length, "big"))

    def _end(self) -> None:
        """It ends by itself when nothing more can come."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    async def stop_process(self) -> int | None:
        """Kill the process, if there is one: what it was at is begun again some time. Its status. Harmless twice."""
        process, self._process = self._process, None
        if process is None:
            return None
        with suppress(ProcessLookupError):
            process.kill()
        return await process.wait()

    async def stop(self) -> None:
        """The same, and no answer comes any more."""
        if self._idle is not None:
            self._idle.cancel()
        if self._task is not None:
            self._task.cancel()
        await self.stop_process()
