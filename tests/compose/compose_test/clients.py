"""The cluster as a client on the host sees it: who rules, who is there, whether every replica is in sync."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compose_test.project import AGENTS, HOST
from compose_test.waiting import CheckFailed, eventually

HEAL_S = 60.0
ANSWER_S = 2.0
_WHICH_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 0, -1)
"""ApiVersions version 0, correlation id 0, no client id, with its length before it: any broker answers that."""


def _silent(_: object) -> None:
    """Errors of connections come as results."""


class Seen(msgspec.Struct, frozen=True):
    """One answer about metadata. `troubled`: partitions without a leader or with replicas out of sync."""

    cluster_id: str
    controller: int
    brokers: tuple[int, ...]
    troubled: tuple[str, ...]
    partitions: int


class Clients:
    """Asks brokers through their published ports. Methods raise CheckFailed when time is up."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        settings: dict[str, str | int | float | Callable[..., object]] = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": "compose-test",
            "socket.timeout.ms": int(
                ANSWER_S * 1000
            ),  # else it waits a minute for a paused broker before it asks others
            "log_level": 0,
            "error_cb": _silent,
        }
        self._admin = AdminClient(settings)  # type: ignore[arg-type]  # its stubs know no callbacks

    def look(self) -> Seen | None:
        """What a broker says; None where nobody answers."""
        try:
            found = self._admin.list_topics(timeout=2 * ANSWER_S)
        except KafkaException:
            return None
        rows = [(topic, row) for topic, entry in sorted(found.topics.items()) for row in entry.partitions.values()]
        troubled = tuple(
            f"{topic}-{row.id} (leader {row.leader}, isr {sorted(row.isrs)} of {sorted(row.replicas)})"
            for topic, row in rows
            if row.leader < 0 or set(row.isrs) != set(row.replicas)
        )
        return Seen(str(found.cluster_id), found.controller_id, tuple(sorted(found.brokers)), troubled, len(rows))

    def wait_healthy(self, brokers: Sequence[int] = (1, 2, 3), within_s: float = HEAL_S) -> Seen:
        """Wait until these brokers, and no others, are there, one rules, and every replica is in sync."""

        def healthy() -> Seen | None:
            seen = self.look()
            if seen is None or seen.brokers != tuple(brokers) or seen.controller not in brokers or seen.troubled:
                return None
            return seen

        return eventually(
            healthy, within_s=within_s, what=lambda: f"brokers {list(brokers)} healthy; last: {self.look()}"
        )

    def ruling(self) -> str:
        seen = eventually(self.look, within_s=HEAL_S, what="an answer about metadata")
        if not 1 <= seen.controller <= len(AGENTS):
            raise CheckFailed(f"nobody rules: {seen}")
        return AGENTS[seen.controller - 1]

    def create_topic(self, name: str, partitions: int) -> None:
        """As the compose file sets it: three replicas, two of which have a record before it is acknowledged."""
        [made] = self._admin.create_topics([NewTopic(name, partitions, -1)], operation_timeout=20).values()
        made.result(timeout=30)


def answers(port: int) -> bool:
    """Whether a broker answers on a published port of this machine."""
    try:
        with socket.create_connection((HOST, port), timeout=ANSWER_S) as link:
            link.sendall(_WHICH_VERSIONS)
            return bool(link.recv(1))
    except OSError:
        return False
