"""The agent's controller process: started, told to end with its parent, started again when it dies, on the same port.

Data loop only. The child is a process of its own with no shared object: its only ties are the pipe whose closing ends
it, and the one line on its stdout that tells its port.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec

from regency.model.errors import RegencyError

logger = logging.getLogger(__name__)

CONTROLLER_COMMAND = (sys.executable, *(["-P"] if sys.flags.safe_path else []), "-m", "regency.controller")

LOOK_MS = 100
"""How often the child is looked at."""

FIRST_RESTART_MS = 100
LAST_RESTART_MS = 10_000
STEADY_MS = 30_000
"""After running this long a child's death begins a new series of delays."""

FIRST_PORT_TIMEOUT_MS = 60_000
END_TIMEOUT_MS = 5_000


class ChildFailed(RegencyError):
    """The controller process could not be started."""

    code: ClassVar[str] = "controller_child_failed"


class _PortLine(msgspec.Struct):
    port: int
    http: int = -1


class ControllerChild:
    """Runs `command` with `arguments`, plus what `fix_ports` adds for a restart on known ports."""

    def __init__(
        self,
        arguments: Sequence[str],
        fix_ports: Callable[[int, int], Sequence[str]],
        command: Sequence[str] = CONTROLLER_COMMAND,
    ) -> None:
        self._arguments = (*command, *arguments)
        self._fix_ports = fix_ports
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._line = b""
        self._port = 0
        self._http_port = -1
        self._known_port: asyncio.Future[int] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The bound port of the child's gRPC server; 0 before it is known."""
        return self._port

    @property
    def http_port(self) -> int:
        """Where the child serves metrics and probes; -1 before it is known, and where it serves none."""
        return self._http_port

    @property
    def running(self) -> bool:
        """Whether there is a child process now."""
        return self._process is not None and self._process.poll() is None

    async def start(self) -> int:
        """Start the child and tell its port. Raises ChildFailed when it ends or says nothing for a minute."""
        self._known_port = asyncio.get_running_loop().create_future()
        self._spawn()
        for _ in range(FIRST_PORT_TIMEOUT_MS // LOOK_MS):
            done, _pending = await asyncio.wait({self._known_port}, timeout=LOOK_MS / 1000)
            if done:
                return self._known_port.result()
            if not self.running:
                break
        status = self._process.poll() if self._process is not None else None
        await self.stop()
        reason = "said nothing for a minute" if status is None else f"ended with status {status}"
        raise ChildFailed(f"The controller process {reason}.", hint="Its log, above, says why.")

    async def watch(self) -> None:
        """Start the child again whenever it dies; runs until cancelled."""
        loop = asyncio.get_running_loop()
        delay_ms = FIRST_RESTART_MS
        while True:
            started = loop.time()
            while self.running:
                await asyncio.sleep(LOOK_MS / 1000)
            if (loop.time() - started) * 1000 >= STEADY_MS:
                delay_ms = FIRST_RESTART_MS
            status = self._process.returncode if self._process is not None else None
            logger.warning("the controller process ended (status %s); starts again in %d ms", status, delay_ms)
            self._forget()
            await asyncio.sleep(delay_ms / 1000)
            delay_ms = min(delay_ms * 2, LAST_RESTART_MS)
            try:
                self._spawn()
            except OSError as error:
                logger.warning("the controller process cannot be started now: %s", error)

    async def stop(self) -> None:
        """End the child: ask, wait 5 s, kill. Harmless twice."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
        for _ in range(END_TIMEOUT_MS // LOOK_MS):
            if process.poll() is not None:
                break
            await asyncio.sleep(LOOK_MS / 1000)
        else:
            process.kill()
            await asyncio.get_running_loop().run_in_executor(None, process.wait)
        self._forget()

    def kill(self) -> None:
        """End the child at once."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._forget()

    def _spawn(self) -> None:
        read_end, self._pipe = os.pipe()
        fixed = self._fix_ports(self._port, self._http_port) if self._port else ()
        command = [*self._arguments, *fixed, "--parent-pipe", str(read_end)]
        try:
            self._process = subprocess.Popen(  # noqa: S603 (our own program)
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=(read_end,)
            )
        finally:
            os.close(read_end)
        assert self._process.stdout is not None
        self._line = b""
        descriptor = self._process.stdout.fileno()
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._on_output, descriptor)

    def _on_output(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, 4096)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(descriptor)
            return
        if self._line.endswith(b"\n"):
            return
        self._line += data
        line, newline, _rest = self._line.partition(b"\n")
        if not newline:
            return
        self._line = line + newline
        try:
            told = msgspec.json.decode(line, type=_PortLine)
            self._port, self._http_port = told.port, told.http
        except msgspec.DecodeError:
            logger.warning("the controller process did not tell its port but %r", line[:200])
            return
        logger.info("controller process %d listens on port %d", self._process.pid if self._process else 0, self._port)
        if self._known_port is not None and not self._known_port.done():
            self._known_port.set_result(self._port)

    def _forget(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            asyncio.get_running_loop().remove_reader(self._process.stdout.fileno())
            self._process.stdout.close()
        self._process = None
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
