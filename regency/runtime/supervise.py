"""Supervised loops: the end of one that should run for ever ends the process, instead of leaving a zombie."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine

OnDeath = Callable[[str, BaseException], None]
"""Told the name of the loop and why it ended; called on the loop's own thread."""


class LoopEnded(Exception):
    """A loop that should run for ever returned."""


def start_thread(name: str, run: Callable[[], None], on_death: OnDeath, *, ends: bool = False) -> threading.Thread:
    """Run a loop on a daemon thread of that name. `ends` says that returning is how it is stopped."""

    def guarded() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 (whatever it was, the process must not go on without this loop)
            on_death(name, error)
            return
        if not ends:
            on_death(name, LoopEnded(f"{name} returned"))

    thread = threading.Thread(target=guarded, name=name, daemon=True)
    thread.start()
    return thread


def start_task(name: str, run: Coroutine[object, object, None], on_death: OnDeath) -> asyncio.Task[None]:
    """Run a loop as a task of the running asyncio loop. Cancelling it is how it is stopped."""

    async def guarded() -> None:
        try:
            await run
        except Exception as error:  # noqa: BLE001 (whatever it was, the process must not go on without this loop)
            on_death(name, error)
            return
        on_death(name, LoopEnded(f"{name} returned"))

    return asyncio.get_running_loop().create_task(guarded(), name=name)


PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends, even while it is stopped. Linux only.

    A parent that is gone already is not noticed. Raises OSError where the kernel refuses.
    """
    if not sys.platform.startswith("linux"):
        return
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"prctl(PR_SET_PDEATHSIG): {os.strerror(errno)}")
