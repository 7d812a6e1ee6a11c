"""Scripts played on a real server, hundreds at a time, and the first difference of each from what the model said."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Iterable, Iterator
from typing import Final

from regency.runtime.zookeeper.wire import (
    FrameReader,
    OpCode,
    Reply,
    Xid,
    decode_connect,
    decode_reply,
    encode_connect,
    encode_path,
    request_frame,
)
from simulation.zookeeper.compare.script import CLIENTS, TIMEOUT_MS, Burst, Reconnect, Renew, Script, marker
from simulation.zookeeper.compare.wire import (
    Owner,
    Request,
    Seen,
    Zxid,
    decode,
    decode_event,
    encode,
    encode_set_watches,
)

AT_A_TIME: Final = 100
_POLL_XID: Final = 1_000_000_000
_ARM_XID: Final = -8
_PATIENCE_S: Final = 20.0


class _Connection:
    """One connection, and what came on it. `expect` is answered by `take`, in order."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader()
        self._frames: list[bytes] = []
        self.session_id = 0
        self.password = b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frame(self) -> bytes:
        while not self._frames:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._frames.extend(self._reader.feed(data))
        return self._frames.pop(0)

    def ask_session(self, before: _Connection | None, timeout_ms: int) -> None:
        if before is None:
            self.send(encode_connect(0, b"", timeout_ms, 0))
        else:
            self.send(encode_connect(before.session_id, before.password, timeout_ms, 0))

    def take_session(self) -> None:
        reply = decode_connect(self.frame())
        assert reply.timeout_ms > 0
        self.session_id, self.password = reply.session_id, reply.password

    def close(self) -> None:
        self._socket.close()


class _Player:
    """Plays one script. `run` yields whenever it waits for the server."""

    def __init__(self, port: int, script: Script, shortest_ms: int) -> None:
        self._port = port
        self._script = script
        self._shortest_ms = shortest_ms
        self._clients: list[_Connection] = []
        self._generations = [1] * CLIENTS
        self._zxids: list[int] = []
        self.seen: list[list[Seen]] = [[] for _ in range(CLIENTS)]
        """What each client sees, up to the end of the last step."""
        self.owners: dict[int, tuple[int, int]] = {0: (-1, 0)}
        self._xid = 0

    def run(self) -> Iterator[None]:
        for client in range(CLIENTS):
            connection = _Connection(self._port)
            self._clients.append(connection)
            connection.ask_session(None, TIMEOUT_MS)
            yield
            connection.take_session()
            self.owners[connection.session_id] = client, 1
        for step in self._script.steps:
            if isinstance(step, Burst):
                yield from self._burst(step.client, step.requests)
            elif isinstance(step, Renew):
                yield from self._renew(step)
            else:
                yield from self._reconnect(step)
        seen, self.seen = self.seen, [[] for _ in range(CLIENTS)]
        for client, connection in enumerate(self._clients):
            self._xid += 1
            connection.send(request_frame(self._xid, OpCode.CLOSE, b""))
            yield
            self._reply(client, self._xid)
            connection.close()
        self.seen = seen

    def _burst(self, client: int, requests: Iterable[Request]) -> Iterator[None]:
        connection = self._clients[client]
        xids = []
        for request in requests:
            self._xid += 1
            xids.append((self._xid, request))
        connection.send(b"".join(encode(request, xid) for xid, request in xids))
        yield
        for xid, request in xids:
            reply = self._reply(client, xid)
            self.seen[client].append(decode(request, reply))
            if request.kind in ("write", "write2", "multi"):
                self._zxids.append(reply.zxid)

    def _reply(self, client: int, xid: int) -> Reply:
        while True:
            reply = decode_reply(self._clients[client].frame())
            if reply.xid == xid:
                return reply
            assert reply.xid == Xid.WATCH, f"a reply to {reply.xid} instead of {xid}"
            self.seen[client].append(decode_event(reply))

    def _renew(self, step: Renew) -> Iterator[None]:
        client, connection = step.client, self._clients[step.client]
        if step.how == "close":
            self._xid += 1
            connection.send(request_frame(self._xid, OpCode.CLOSE, b""))
            yield
            self.seen[client].append(("close", Zxid(self._reply(client, self._xid).zxid)))
        else:
            yield from self._expire(client)
        connection.close()
        connection = self._clients[client] = _Connection(self._port)
        connection.ask_session(None, TIMEOUT_MS)
        yield
        connection.take_session()
        self._generations[client] += 1
        self.owners[connection.session_id] = client, self._generations[client]

    def _expire(self, client: int) -> Iterator[None]:
        """Continue the session with the shortest timeout there is, vanish, and wait for its ephemerals to do so too."""
        yield from self._hear_out(client)
        again = _Connection(self._port)
        again.ask_session(self._clients[client], self._shortest_ms)
        yield
        with contextlib.suppress(ConnectionResetError):  # over before the server could say that it is granted
            again.take_session()
        again.close()
        mark = marker(self._script.root, client, self._generations[client])
        watcher = (client + 1) % CLIENTS
        while True:
            self._clients[watcher].send(request_frame(_POLL_XID, OpCode.GET_DATA, encode_path(mark) + b"\0"))
            yield
            if self._reply(watcher, _POLL_XID).error:
                return

    def _hear_out(self, client: int) -> Iterator[None]:
        """Take what is still on its way on a connection that is about to be given up."""
        self._clients[client].send(request_frame(_POLL_XID, OpCode.SYNC, encode_path("/")))
        yield
        self._reply(client, _POLL_XID)

    def _reconnect(self, step: Reconnect) -> Iterator[None]:
        client = step.client
        yield from self._hear_out(client)
        before, connection = self._clients[client], _Connection(self._port)
        before.close()
        connection.ask_session(before, TIMEOUT_MS)
        yield
        connection.take_session()
        self._clients[client] = connection
        since = self._zxids[step.since] if step.since >= 0 else 0
        connection.send(request_frame(_ARM_XID, OpCode.SET_WATCHES2, encode_set_watches(since, step.watches)))
        yield
        assert not self._reply(client, _ARM_XID).error
        self.seen[client].append(("armed",))


def play_all(
    port: int, scripts: Iterable[Script], shortest_ms: int, *, together: int = AT_A_TIME
) -> Iterator[tuple[Script, str]]:
    """Play `scripts`, so many `together`; each with its first difference from the model, "" where there is none.

    `shortest_ms`: the shortest session timeout that the server grants. Alone, a script's zxids differ from the model's
    by a constant; otherwise their order is the same.
    """
    waiting = iter(scripts)
    playing: dict[int, tuple[Script, _Player, Iterator[None]]] = {}
    more = True
    while more or playing:
        while more and len(playing) < together:
            script = next(waiting, None)
            if script is None:
                more = False
                break
            player = _Player(port, script, shortest_ms)
            playing[script.number] = script, player, player.run()
        for number in list(playing):
            script, player, run = playing[number]
            try:
                next(run)
            except StopIteration:
                del playing[number]
                yield script, difference(script, player.seen, player.owners, exact=together == 1)


def difference(
    script: Script, seen: list[list[Seen]], owners: dict[int, tuple[int, int]], *, exact: bool = False
) -> str:
    """The first difference between what the model said and what was `seen`; "" where there is none."""
    zxids: dict[int, int] = {}
    model_owners = {**script.owners, 0: (-1, 0)}
    for client, (expected, actual) in enumerate(zip(script.expected, seen, strict=True)):
        for index in range(max(len(expected), len(actual))):
            ours = expected[index] if index < len(expected) else None
            theirs = actual[index] if index < len(actual) else None
            if not _same(ours, theirs, zxids, model_owners, owners):
                before = "\n  ".join(str(each) for each in actual[max(0, index - 3) : index])
                return f"client {client}, item {index}:\n  {before}\n  model {ours}\n  real  {theirs}"
    pairs = sorted(zxids.items())
    for (real, model), (next_real, next_model) in itertools.pairwise(pairs):
        if model >= next_model or (exact and next_real - real != next_model - model):
            return f"other zxids: {real:#x}, {next_real:#x} are {model}, {next_model} in the model"
    return ""


def _same(
    ours: object,
    theirs: object,
    zxids: dict[int, int],
    model_owners: dict[int, tuple[int, int]],
    owners: dict[int, tuple[int, int]],
) -> bool:
    if isinstance(ours, Zxid) and isinstance(theirs, Zxid):
        if ours.value <= 0 or theirs.value <= 0:
            return ours.value == theirs.value
        return zxids.setdefault(theirs.value, ours.value) == ours.value
    if isinstance(ours, Owner) and isinstance(theirs, Owner):
        return model_owners.get(ours.value) == owners.get(theirs.value)
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        pairs = zip(ours, theirs, strict=False)
        return len(ours) == len(theirs) and all(_same(a, b, zxids, model_owners, owners) for a, b in pairs)
    return ours == theirs
