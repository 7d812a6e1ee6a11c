"""The thread at the edge of a fetcher: sends what it is given, waits for the answer, hands it to the data loop.

Knows the network and nothing else. The data loop gives the next command in the same hop in which it takes an answer.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec

from regency.broker_agent.replication.api import LeaderAddress
from regency.kafka.codec import Message
from regency.kafka.fetching import wire as fetch_wire
from regency.kafka.fetching.values import FetchPlan, Pause, Plan, Reply
from regency.kafka.peer import PeerConnection, PeerUnavailable
from regency.model.ids import BrokerId

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_MS = 5_000


class Failed(msgspec.Struct, frozen=True):
    """The exchange failed, and what the peer made of the request is not known."""

    why: str


class Rested(msgspec.Struct, frozen=True):
    """A pause is over."""


Command = Plan | Pause
Outcome = Reply | Failed | Rested


class Transport(Protocol):
    """What a fetcher talks through. One outcome per plan, Rested for a pause that ran out, on the data loop."""

    @property
    def alive(self) -> bool:
        """Whether it still carries out requests."""
        ...

    def send(self, command: Command) -> None:
        """Do this next. A plan is only given when the last one is answered; a pause is ended by any command."""
        ...

    def redirect(self, address: LeaderAddress) -> None:
        """Talk to this address from now on. A running exchange fails."""
        ...

    def close(self) -> None:
        """End; nothing is delivered any more. Returns at once, and the network is let go within a second."""
        ...


class FetcherThread:
    """A thread with one connection. Methods are for the data loop; `deliver` is called there, through `post`."""

    def __init__(
        self,
        name: str,
        client_id: str,
        replica: BrokerId,
        address: LeaderAddress,
        request_timeout_ms: int,
        post: Callable[[Callable[[], None]], None],
        deliver: Callable[[Outcome], None],
    ) -> None:
        self._client_id = client_id
        self._replica = replica
        self._request_timeout_ms = request_timeout_ms
        self._post = post
        self._deliver = deliver
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._closed = False
        self._connection = self._connect(address)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs. None ends by itself; one that has was ended by a defect."""
        return self._thread.is_alive()

    def send(self, command: Command) -> None:
        """Do this next."""
        self._commands.put(command)

    def redirect(self, address: LeaderAddress) -> None:
        """Talk to this address from now on; a running exchange fails at once."""
        old, self._connection = self._connection, self._connect(address)
        old.close()

    def close(self) -> None:
        """End the thread and its connection, without waiting for it."""
        self._closed = True
        self._commands.put(None)
        self._connection.close()

    def join(self, timeout_ms: int) -> bool:
        """Wait for the thread after `close`; whether it has ended."""
        self._thread.join(timeout_ms / 1000)
        return not self._thread.is_alive()

    def _connect(self, address: LeaderAddress) -> PeerConnection:
        return PeerConnection(
            address.host,
            address.port,
            client_id=self._client_id,
            connect_timeout_ms=min(CONNECT_TIMEOUT_MS, self._request_timeout_ms),
            request_timeout_ms=self._request_timeout_ms,
        )

    def _run(self) -> None:
        command = self._commands.get()
        while command is not None:
            if isinstance(command, Pause):
                command = self._rest(command)
                continue
            outcome = self._exchange(command)
            if self._closed:
                return
            self._post(partial(self._deliver, outcome))
            command = self._commands.get()

    def _rest(self, pause: Pause) -> Command | None:
        if pause.milliseconds is None:
            return self._commands.get()
        try:
            return self._commands.get(timeout=pause.milliseconds / 1000)
        except queue.Empty:
            self._post(partial(self._deliver, Rested()))
            return self._commands.get()

    def _exchange(self, plan: Plan) -> Outcome:
        try:
            if isinstance(plan, FetchPlan):
                request = fetch_wire.fetch_request(plan, self._replica)
                return fetch_wire.fetch_reply(plan, self._ask(request, fetch_wire.FETCH_VERSION))
            request = fetch_wire.offsets_request(plan, self._replica)
            return fetch_wire.offsets_reply(self._ask(request, fetch_wire.LIST_OFFSETS_VERSION))
        except PeerUnavailable as error:
            return Failed(str(error))
        except Exception as error:  # an answer that cannot be read is as good as none, and the thread must go on
            logger.exception("an exchange with the leader failed unexpectedly")
            return Failed(f"{type(error).__name__}: {error}.")

    def _ask(self, request: Message, version: int) -> Message:
        return self._connection.exchange(request, version)
