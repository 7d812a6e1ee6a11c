"""Requests of many parts: operations of a multi, checked and encoded before anything is sent, with its results as typed
outcomes; many reads, cut into MultiReads. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from regency.runtime.zookeeper.session import (
    Create,
    MultiOutcome,
    Op,
    OpOutcome,
    SetData,
    ZkAuthFailed,
    ZkCode,
    ZkConnectionLost,
    ZkError,
    ZkRequestTooLarge,
    ZkSessionLost,
)
from regency.runtime.zookeeper.wire import ErrorNumber, MultiResult, WireError, decode_multi, encode_multi, encode_op

MAX_MULTI_BYTES: Final = 512 * 1024
"""Of a multi of several operations; half of what ZooKeeper takes, as Kafka keeps it."""

MAX_MULTI_OPS: Final = 501
"""The check of the epoch and 500 operations."""

MAX_REQUEST_BYTES: Final = 1_048_575 - 1024
"""jute.maxbuffer of a server as it comes, less room for headers: for a multi in which one operation alone passes
MAX_MULTI_BYTES, as a topic of very many partitions does."""

SYNC_AND_READ: Final = "A write may or may not have happened: sync, then read."

_CODES: Final[dict[int, ZkCode]] = {
    ErrorNumber.OK: ZkCode.ROLLED_BACK,
    ErrorNumber.RUNTIME_INCONSISTENCY: ZkCode.ROLLED_BACK,
    ErrorNumber.NO_NODE: ZkCode.NO_NODE,
    ErrorNumber.NO_AUTH: ZkCode.NO_AUTH,
    ErrorNumber.BAD_VERSION: ZkCode.BAD_VERSION,
    ErrorNumber.NO_CHILDREN_FOR_EPHEMERALS: ZkCode.NO_CHILDREN_FOR_EPHEMERALS,
    ErrorNumber.NODE_EXISTS: ZkCode.NODE_EXISTS,
    ErrorNumber.NOT_EMPTY: ZkCode.NOT_EMPTY,
}


def below(chroot: str, path: str) -> str:
    """The whole path of `path`, which is absolute below `chroot`. Raises ValueError where it is not a path."""
    if not path.startswith("/") or (path.endswith("/") and path != "/"):
        raise ValueError(f"{path!r} is not an absolute path")
    return chroot + path if path != "/" else chroot or "/"


def without_chroot(chroot: str, path: str) -> str:
    """`path` as callers know it."""
    return path[len(chroot) :] or "/" if chroot else path


def op_size(op: Op, chroot: str = "") -> int:
    """Bytes that `op` takes in a multi, within a few."""
    data = op.data if isinstance(op, Create | SetData) else b""
    return len(chroot) + len(op.path.encode()) + len(data) + 64


def encode_ops(ops: Sequence[Op], chroot: str, *, restrict: bool) -> bytes:
    """Payload of a multi of `ops`.

    Raises ZkRequestTooLarge naming the largest operation, and ValueError for no operations, a version below 0 (which
    would write whatever is there) or a path that is none.
    """
    if not ops:
        raise ValueError("a multi of no operations")
    if len(ops) > MAX_MULTI_OPS:
        raise ZkRequestTooLarge(f"{len(ops)} operations in one multi; at most {MAX_MULTI_OPS} are sent.")
    for op in ops:
        if not isinstance(op, Create) and op.version is not None and op.version < 0:
            raise ValueError(f"version {op.version} of {op.path} would match any; give the version that was read")
    encoded = [encode_op(op, below(chroot, op.path), restrict=restrict) for op in ops]
    size, largest = sum(map(len, encoded)), max(map(len, encoded))
    limit = MAX_REQUEST_BYTES if largest > MAX_MULTI_BYTES else MAX_MULTI_BYTES
    if size > limit:
        path = ops[[len(part) for part in encoded].index(largest)].path
        raise ZkRequestTooLarge(
            f"a multi of {len(ops)} operations takes {size} bytes, {largest} of them for {path};"
            f" at most {limit} are sent.",
            hint="Write less at once, or keep less in the znode.",
        )
    return encode_multi(encoded)


def decode_outcome(ops: Sequence[Op], body: bytes, chroot: str) -> MultiOutcome:
    """Outcomes of `ops` in their order. Raises ZkError for a failure that ZkCode has no name for."""
    results = decode_multi(body)
    if len(results) != len(ops):
        raise WireError(f"{len(results)} results for a multi of {len(ops)} operations")
    return MultiOutcome(tuple(_outcome(op, result, chroot) for op, result in zip(ops, results, strict=True)))


def _outcome(op: Op, result: MultiResult, chroot: str) -> OpOutcome:
    if not result.failed:
        path = without_chroot(chroot, result.path) if isinstance(op, Create) else ""
        return OpOutcome(ZkCode.OK, path, result.stat)
    code = _CODES.get(result.error)
    if code is None:
        raise error_of(result.error, f"{type(op).__name__.lower()} {op.path}")
    return OpOutcome(code)


def error_of(number: int, what: str) -> ZkError:
    """The error that a KeeperException of code `number` is, where it is not an outcome."""
    if number in (ErrorNumber.NO_AUTH, ErrorNumber.AUTH_FAILED, ErrorNumber.AUTH_REQUIRED):
        return ZkAuthFailed(
            f"{what}: ZooKeeper refused access (error {number}).",
            hint="Give credentials that its ACL allows (regency.zookeeper.digest.auth).",
        )
    if number == ErrorNumber.SESSION_EXPIRED:
        return ZkSessionLost(f"{what}: ZooKeeper has ended the session.")
    if number == ErrorNumber.SESSION_MOVED:
        return ZkConnectionLost(f"{what}: the session has moved to another server.", hint=SYNC_AND_READ)
    return ZkError(f"{what}: ZooKeeper answered error {number}.")


_MAX_PATHS: Final = 500
_FIRST_PATHS: Final = 32
_READ_REQUEST_BYTES: Final = 256 * 1024
TARGET_REPLY_BYTES: Final = 512 * 1024
WINDOW: Final = 4
"""Requests under way at a time: enough that the server never waits for us."""


class ChunkPlan:
    """Cuts a list of paths into MultiReads, whose size follows that of the replies."""

    def __init__(self, paths: Sequence[str], *, max_paths: int = _MAX_PATHS) -> None:
        self._paths = paths
        self._next = 0
        self._max_paths = max_paths
        self._limit = min(_FIRST_PATHS, max_paths)

    @property
    def done(self) -> bool:
        """Whether every path is in a chunk."""
        return self._next >= len(self._paths)

    def next(self) -> Sequence[str]:
        """The next chunk, at least one path; call only while not `done`."""
        chunk = self._paths[self._next : self._next + self._limit]
        if sum(map(len, chunk)) + 16 * len(chunk) > _READ_REQUEST_BYTES:
            sizes = accumulate(len(path) + 16 for path in chunk)
            fitting = sum(size <= _READ_REQUEST_BYTES for size in sizes)
            chunk = chunk[: max(fitting, 1)]
        self._next += len(chunk)
        return chunk

    def learn(self, paths: int, reply_bytes: int) -> None:
        """A chunk of `paths` paths gave a reply of that size: the next ones aim at the target, at most doubling."""
        fitting = TARGET_REPLY_BYTES * paths // max(reply_bytes, 1)
        self._limit = max(1, min(fitting, self._limit * 2, self._max_paths))
