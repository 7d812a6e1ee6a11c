"""One connection to another broker's Kafka listener, blocking, for the fetcher threads.

Not for the data loop: every call waits for the network. One exchange at a time; only `close` may be called from
another thread.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Final

from regency.kafka.apis import ApiKey, Message
from regency.kafka.decoder import FrameMalformed
from regency.model.errors import RegencyError

MAX_RESPONSE_BYTES: Final = 256 << 20
"""Largest response accepted: far above replica.fetch.response.max.bytes, far below a forged length."""


class PeerUnavailable(RegencyError):
    """No answer from another broker: not reachable, too slow, gone, or it sent what is none. The connection is
    closed."""

    code = "peer_unavailable"
    retriable = True


class PeerConnection:
    """Requests to one broker, in order. Connects with the first exchange and again after a failure, until closed.

    `connect_timeout_ms` bounds connecting to each address the host name has, `request_timeout_ms` a whole exchange from
    the first byte sent to the last byte received, long poll included.
    """

    def __init__(
        self, host: str, port: int, *, client_id: str, connect_timeout_ms: int, request_timeout_ms: int
    ) -> None:
        self._host = host
        self._port = port
        self._client_id = client_id
        self._connect_timeout = connect_timeout_ms / 1000
        self._request_timeout = request_timeout_ms / 1000
        self._correlation_id = 0
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._exchanging = False
        self._closed = False

    def __str__(self) -> str:
        return f"{self._host}:{self._port}"

    def exchange(self, message: Message, version: int, *, timeout_ms: int | None = None) -> Message:
        """Send a request in `version` and wait for its answer. After PeerUnavailable its outcome is not known.

        `timeout_ms` in place of the connection's own, this time.
        """
        timeout = self._request_timeout if timeout_ms is None else timeout_ms / 1000
        with self._lock:
            self._check_open()
            if self._exchanging:
                raise RuntimeError(f"the connection to {self} is used by two threads at once")
            self._exchanging = True
        try:
            return self._exchange(message, version, timeout)
        except TimeoutError as error:
            self._drop()
            raise self._failed(f"did not answer within {timeout:g} s", error) from error
        except (OSError, FrameMalformed) as error:
            self._drop()
            raise self._failed(f"failed: {error}", error) from error
        except BaseException:
            self._drop()
            raise
        finally:
            with self._lock:
                self._exchanging = False
                if self._closed:
                    self._release()

    def close(self) -> None:
        """Close for good. An exchange that waits in another thread ends at once with PeerUnavailable."""
        with self._lock:
            self._closed = True
            if self._socket is None:
                return
            if not self._exchanging:
                self._release()
                return
            # The descriptor stays open until the exchanging thread lets go of it: its number must not be given to
            # another file meanwhile.
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # not connected yet, or the peer was faster

    def hang_up(self) -> None:
        """Let go of the connection while nothing is exchanged; the next exchange makes another."""
        with self._lock:
            if self._exchanging:
                raise RuntimeError(f"the connection to {self} is in use")
            self._release()

    def _exchange(self, message: Message, version: int, timeout: float) -> Message:
        from regency.kafka.codec import (  # noqa: PLC0415  (a command that sends no request does not pay for it)
            decode_response,
            encode_request,
        )

        connection = self._socket or self._connect(min(timeout, self._connect_timeout))
        deadline = time.monotonic() + timeout
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        request = encode_request(version, self._correlation_id, self._client_id, message)
        connection.settimeout(timeout)
        connection.sendall(request)
        size = int.from_bytes(self._receive(connection, 4, deadline), "big", signed=True)
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise FrameMalformed(f"The response claims {size} bytes.")
        frame = self._receive(connection, size, deadline)
        correlation_id, answer = decode_response(ApiKey(message.API_KEY), version, frame)
        if correlation_id != self._correlation_id:
            raise FrameMalformed(
                f"The response has correlation id {correlation_id}, the request had {self._correlation_id}."
            )
        return answer

    def _connect(self, timeout: float) -> socket.socket:
        failure: OSError | None = None
        for family, kind, protocol, _, address in socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM):
            connection = socket.socket(family, kind, protocol)
            with self._lock:
                if self._closed:
                    connection.close()
                    self._check_open()
                self._socket = connection
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(timeout)
                connection.connect(address)
            except OSError as error:
                failure = error
                self._drop()
            else:
                return connection
        raise OSError(f"connecting: {failure or 'the name has no address'}")

    def _receive(self, connection: socket.socket, size: int, deadline: float) -> bytearray:
        received = bytearray(size)
        view = memoryview(received)
        position = 0
        while position < size:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            connection.settimeout(remaining)
            count = connection.recv_into(view[position:])
            if count == 0:
                raise ConnectionResetError("the connection was closed before the answer was complete")
            position += count
        return received

    def _failed(self, what: str, error: BaseException) -> PeerUnavailable:
        if self._closed:
            return PeerUnavailable(f"The connection to {self} was closed.")
        if isinstance(error, FrameMalformed):
            return PeerUnavailable(
                f"The exchange with {self} {what}", hint="Is that port a Kafka listener of this cluster?"
            )
        return PeerUnavailable(f"The exchange with {self} {what}.")

    def _check_open(self) -> None:
        if self._closed:
            raise PeerUnavailable(f"The connection to {self} was closed.")

    def _drop(self) -> None:
        with self._lock:
            self._release()

    def _release(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
