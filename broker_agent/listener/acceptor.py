"""Accepts connections, as asyncio's servers do, but for what happens when the process has no descriptor left."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import Final

from regency.broker_agent.listener.stats import Closing, ListenerStats
from regency.runtime.descriptors import is_shortage

AT_ONCE: Final = 16
"""Connections that may be accepted and not placed yet: they have descriptors, although there may be no place."""

PAUSE_S: Final = 1.0
"""How long nothing is accepted where there is not even a descriptor to turn a client away with."""


class Acceptor:
    """Serves one listening socket, which it owns, until `close`. Made and used on the data loop.

    Where descriptors are short, asyncio's own writes a hundred tracebacks a second, and leaves clients waiting. This
    one keeps a descriptor to accept them with, and closes them at once.
    """

    def __init__(self, bound: socket.socket, make: Callable[[], asyncio.Protocol], stats: ListenerStats) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = bound
        self._make = make
        self._stats = stats
        self._spare = _open_spare()
        self._pause: asyncio.TimerHandle | None = None
        self._beginning: set[asyncio.Task[object]] = set()
        bound.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accept nothing more."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for task in self._beginning:
            task.cancel()
        if self._spare >= 0:
            os.close(self._spare)

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        while len(self._beginning) < AT_ONCE:
            try:
                connection, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if not is_shortage(error) and error.errno != errno.ENOBUFS:
                    raise
                if not self._turn_away(error):
                    return
            else:
                self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._make, connection))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    def _turn_away(self, error: OSError) -> bool:
        """Accept the next with the spare descriptor and close it; False: no client waits, or there is none left."""
        turned_away = False
        if self._spare >= 0:
            os.close(self._spare)
            try:
                self._socket.accept()[0].close()
            except OSError:
                pass  # no caller waits any more, or another thread took it
            else:
                turned_away = True
                self._stats.count_closing(Closing.NO_DESCRIPTORS, "somebody", str(error))
        self._spare = _open_spare()
        if self._spare < 0:
            self._loop.remove_reader(self._socket)
            self._pause = self._loop.call_later(PAUSE_S, self._listen)
        return turned_away and self._spare >= 0


def _open_spare() -> int:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
