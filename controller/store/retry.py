"""Waiting out a lost connection to ZooKeeper: within one session, bounded, and without polling."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from regency.model.crash_points import crash_point
from regency.runtime.zookeeper.session import SessionEvent, ZkConnectionLost, ZkSession, ZkSessionLost

logger = logging.getLogger(__name__)

T = TypeVar("T")

ATTEMPTS_IN_CONTACT = 5
"""How often a call may lose its connection while the session says it is connected, before it is given up."""


class Retry:
    """Repeats a call that lost its connection, as long as its session lives. Only for calls that may run twice."""

    def __init__(self, session: ZkSession) -> None:
        self._session = session
        self._changed = threading.Event()
        self._abandoned = False
        session.listen(self._on_session_event)

    def until_done(self, call: Callable[[], T]) -> T:
        """The call's result. Raises ZkSessionLost when the session is gone, ZkConnectionLost after many losses."""
        generation = self._session.generation
        attempts = 0
        while True:
            self._changed.clear()
            try:
                return call()
            except ZkConnectionLost:
                if self._session.connected:
                    attempts += 1
                if attempts >= ATTEMPTS_IN_CONTACT:
                    raise
            crash_point("controller.contact.after_loss")
            self._await_contact(generation)

    def abandon(self) -> None:
        """Let every call that waits, now or later, end with ZkSessionLost: the process is ending."""
        self._abandoned = True
        self._changed.set()

    def _await_contact(self, generation: int) -> None:
        while True:
            if self._abandoned or self._session.generation != generation or self._session.session_id == 0:
                raise ZkSessionLost("The session with ZooKeeper ended while a call waited for contact.")
            if self._session.connected:
                return
            self._changed.wait(self._session.session_timeout_ms / 1000)
            self._changed.clear()

    def _on_session_event(self, _event: SessionEvent, _generation: int) -> None:
        self._changed.set()
