"""How full the volumes of log directories are, and what is in them: DescribeLogDirs, asked of all brokers at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from regency.clients.nodes import Node
from regency.kafka.peer import PeerConnection, PeerUnavailable
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode

AT_ONCE: Final = 32
VERSION: Final = 4
GLANCE_MS: Final = 1_000
WARN_USED, FULL_USED = 0.85, 0.95
"""Of a volume, from which on it is told."""


class Log(msgspec.Struct, frozen=True):
    """A log in a directory; `future`: a copy that will replace the one in another directory."""

    topic: str
    partition: int
    size: int
    future: bool


class Directory(msgspec.Struct, frozen=True):
    """A log directory; bytes of its volume are None where it does not tell. `logs`: those that were asked for."""

    path: str
    offline: bool
    usable: int | None
    total: int | None
    logs: list[Log]

    @property
    def used_share(self) -> float | None:
        """Of its volume, 0 to 1."""
        return 1 - self.usable / self.total if self.total and self.usable is not None else None


def directories(
    nodes: Sequence[Node], *, logs: bool = False, timeout_ms: int = GLANCE_MS
) -> dict[BrokerId, list[Directory] | str]:
    """The log directories of each broker, with their logs or without, or why it does not tell."""
    if not nodes:
        return {}
    with ThreadPoolExecutor(min(len(nodes), AT_ONCE), thread_name_prefix="disks") as pool:
        answers = pool.map(lambda node: _of(node, logs, timeout_ms), nodes)
        return dict(zip((node.id for node in nodes), answers, strict=True))


def disks_used(nodes: Sequence[Node]) -> dict[BrokerId, float | None]:
    """How full the fullest volume of each broker is, 0 to 1; None where it does not tell."""
    return {
        broker: None if isinstance(told, str) else max((each.used_share or 0.0 for each in told), default=None)
        for broker, told in directories(nodes).items()
    }


def _of(node: Node, logs: bool, timeout_ms: int) -> list[Directory] | str:
    from regency.kafka.codec import DescribeLogDirsRequest

    peer = PeerConnection(
        node.host, node.port, client_id="regency-cli", connect_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms
    )
    try:
        answer = peer.exchange(DescribeLogDirsRequest(version=VERSION, topics=None if logs else []), VERSION)
    except PeerUnavailable as error:
        return str(error)
    finally:
        peer.close()
    if answer.error_code != ErrorCode.NONE:
        return ErrorCode(answer.error_code).name
    return [
        Directory(
            each.log_dir,
            each.error_code != ErrorCode.NONE,
            None if each.usable_bytes < 0 else each.usable_bytes,
            None if each.total_bytes < 0 else each.total_bytes,
            [
                Log(topic.name, log.partition_index, log.partition_size, log.is_future_key)
                for topic in each.topics
                for log in topic.partitions
            ],
        )
        for each in answer.results
    ]
