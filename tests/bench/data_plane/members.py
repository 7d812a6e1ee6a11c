"""Members of consumer groups, and clients that commit, by the hundred on one thread of a process of their own.

They send what Kafka's clients send, and little more is done here with what comes back, so that on two cores it is the
coordinator's work that is measured. Each has a connection of its own, and one request under way.
"""

from __future__ import annotations

import multiprocessing
import selectors
import socket
import time
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Self

from data_plane.topics import until
from regency.kafka import codec
from regency.kafka.apis import ApiKey
from regency.model.kafka_errors import ErrorCode

JOIN, SYNC, HEARTBEAT, COMMIT, FETCH = 5, 3, 3, 7, 5
"""Versions: the last in classic encoding; what they cost differs little from the newest."""
HEARTBEAT_S = 3.0
"""heartbeat.interval.ms of Kafka's consumer."""
SESSION_MS, REBALANCE_MS = 45_000, 300_000
SUBSCRIPTION = b"\0\0\0\0\0\1\0\4read\xff\xff\xff\xff"
Address = tuple[str, int]
Script = Generator[bytes | float, Any, None]
"""What one client does: gives a request and is sent its answer, or gives seconds to wait."""


class Crowd:
    """So many clients from entering a `with` block until leaving it; `ready` when each has come to what it is for."""

    def __init__(self, work: Callable[..., None], address: Address, *details: object) -> None:
        context: Any = multiprocessing.get_context("spawn")
        self._ready, self._ending = context.Value("d", 0.0), context.Event()
        self._answers, self._slowest = context.Value("q", 0), context.Array("d", 3)
        shared = (self._ready, self._ending, self._answers, self._slowest)
        self._process = context.Process(target=work, args=(address, *details, *shared), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def answers(self) -> int:
        """Answers to commits, or to heartbeats."""
        return int(self._answers.value)

    @property
    def latencies_ms(self) -> list[float]:
        """p50, p99 and the longest of the commits; after `end`."""
        return list(self._slowest)

    def wait_ready(self, within_s: float) -> float:
        """Wall time at which the last one was ready."""
        until(lambda: self._ready.value > 0 or not self._process.is_alive(), "all clients are ready", within_s)
        if not self._process.is_alive():
            raise RuntimeError(f"the clients' process ended with {self._process.exitcode}; what it said is above")
        return float(self._ready.value)

    def end(self) -> None:
        """Have all end; harmless twice."""
        self._ending.set()
        self._process.join(60)
        if self._process.exitcode is None:
            self._process.kill()


def commit(address: Address, clients: int, partitions: int, ready: Any, ending: Any, answers: Any, slow: Any) -> None:
    """Clients that commit one partition of their group, again and again."""
    requests = [commit_request(f"group-{number}", [number % partitions], 1 + number) for number in range(clients)]
    taken: list[float] = []
    with selectors.DefaultSelector() as selector:
        began = {}
        for request in requests:
            connection = socket.create_connection(address)
            selector.register(connection, selectors.EVENT_READ, request)
            connection.sendall(request)
            began[request] = time.perf_counter()
        ready.value = time.time()
        while not ending.is_set():
            for key, _ in selector.select(0.1):
                frame = received(key.fileobj)  # type: ignore[arg-type]
                if frame[-2:] != b"\0\0":
                    raise RuntimeError(f"a commit was answered {ErrorCode(int.from_bytes(frame[-2:], 'big')).name}")
                now = time.perf_counter()
                taken.append(now - began[key.data])
                began[key.data] = now
                key.fileobj.sendall(key.data)  # type: ignore[union-attr]
                answers.value += 1
    ordered = sorted(taken) or [0.0]
    for place, share in enumerate((0.5, 0.99, 1.0)):
        slow[place] = round(1000 * ordered[min(int(len(ordered) * share), len(ordered) - 1)], 2)


def live(address: Address, groups: int, members: int, ready: Any, ending: Any, answers: Any, slow: Any) -> None:
    """Members that join and then do nothing: `ready` when each group is stable, each member with its assignment."""
    del slow
    settled: set[int] = set()

    def note(number: int, *, stable: bool) -> None:
        settled.add(number) if stable else settled.discard(number)
        if len(settled) == groups * members and not ready.value:
            ready.value = time.time()

    def beat() -> None:
        answers.value += 1

    with selectors.DefaultSelector() as selector:
        waiting: list[tuple[float, socket.socket, Script]] = []

        def go_on(connection: socket.socket, script: Script, answer: bytes | None) -> None:
            wanted = script.send(answer)
            if isinstance(wanted, float):
                waiting.append((time.monotonic() + wanted, connection, script))
            else:
                connection.sendall(wanted)

        for number in range(groups * members):
            connection = socket.create_connection(address)
            script = member(f"group-{number % groups}", number, note, beat)
            selector.register(connection, selectors.EVENT_READ, script)
            go_on(connection, script, None)
        while not ending.is_set():
            for key, _ in selector.select(0.05):
                go_on(key.fileobj, key.data, received(key.fileobj))  # type: ignore[arg-type]
            now = time.monotonic()
            if waiting and waiting[0][0] <= now:  # all wait equally long: in order
                due = [each for each in waiting if each[0] <= now]
                del waiting[: len(due)]
                for _, connection, script in due:
                    go_on(connection, script, None)


def member(group: str, number: int, note: Callable[..., None], beat: Callable[[], None]) -> Script:
    """A dynamic member's life: join, sync, heartbeats, and again whenever the group is rebalanced."""
    member_id = ""
    while True:
        note(number, stable=False)
        joined: Any = codec.decode_response(ApiKey.JOIN_GROUP, JOIN, (yield join_request(group, member_id)))[1]
        member_id = joined.member_id
        if joined.error_code != 0:
            _expect(joined.error_code, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS)
            continue
        everybody = [each.member_id for each in joined.members]
        synced: Any = codec.decode_response(
            ApiKey.SYNC_GROUP, SYNC, (yield sync_request(group, joined.generation_id, member_id, everybody))
        )[1]
        if synced.error_code != 0:
            _expect(synced.error_code, ErrorCode.REBALANCE_IN_PROGRESS)
            continue
        if not synced.assignment:
            raise RuntimeError(f"a member of {group} was assigned nothing")
        note(number, stable=True)
        error = 0
        while error == 0:
            yield HEARTBEAT_S
            frame = yield heartbeat_request(group, joined.generation_id, member_id)
            error = int.from_bytes(frame[8:10], "big")
            beat()
        _expect(error, ErrorCode.REBALANCE_IN_PROGRESS)


def _expect(error: int, *errors: ErrorCode) -> None:
    if ErrorCode(error) not in errors:
        raise RuntimeError(f"a member was answered {ErrorCode(error).name}")


def join_request(group: str, member_id: str) -> bytes:
    protocol = codec.JoinGroupRequest.JoinGroupRequestProtocol(version=JOIN, name="range", metadata=SUBSCRIPTION)
    message = codec.JoinGroupRequest(
        version=JOIN,
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[protocol],
    )
    return bytes(codec.encode_request(JOIN, 1, "bench", message))


def sync_request(group: str, generation: int, member_id: str, everybody: list[str]) -> bytes:
    """`everybody`: members to assign to, which only the leader is told."""
    kind = codec.SyncGroupRequest.SyncGroupRequestAssignment
    given = [
        kind(
            version=SYNC,
            member_id=each,
            assignment=b"\0\0\0\0\0\1\0\4read\0\0\0\1" + place.to_bytes(4, "big") + b"\xff" * 4,
        )
        for place, each in enumerate(everybody)
    ]
    message = codec.SyncGroupRequest(
        version=SYNC,
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=None,
        assignments=given,
    )
    return bytes(codec.encode_request(SYNC, 2, "bench", message))


def heartbeat_request(group: str, generation: int, member_id: str) -> bytes:
    message = codec.HeartbeatRequest(
        version=HEARTBEAT, group_id=group, generation_id=generation, member_id=member_id, group_instance_id=None
    )
    return bytes(codec.encode_request(HEARTBEAT, 3, "bench", message))


def commit_request(group: str, partitions: list[int], offset: int) -> bytes:
    """A commit of one who is no member."""
    topic = codec.OffsetCommitRequest.OffsetCommitRequestTopic
    kind = topic.OffsetCommitRequestPartition
    rows = [
        kind(
            version=COMMIT,
            partition_index=each,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        for each in partitions
    ]
    message = codec.OffsetCommitRequest(
        version=COMMIT,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic(version=COMMIT, name="read", partitions=rows)],
    )
    return bytes(codec.encode_request(COMMIT, 4, "bench", message))


def fetch_request(group: str) -> bytes:
    """Of all partitions that the group has committed."""
    return bytes(
        codec.encode_request(FETCH, 5, "bench", codec.OffsetFetchRequest(version=FETCH, group_id=group, topics=None))
    )


def received(connection: socket.socket) -> bytes:
    """A whole answer. Raises RuntimeError where the connection ends."""
    size = connection.recv(4, socket.MSG_WAITALL)
    frame = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL) if len(size) == 4 else b""
    if not frame:
        raise RuntimeError("a broker closed a connection")
    return frame
