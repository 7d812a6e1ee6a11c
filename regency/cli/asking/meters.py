"""What brokers tell of themselves over HTTP, at /metrics, where their settings say it is: bytes, lag, connections.

Every broker is asked on a thread of its own and has a second. One that does not tell, is older than a metric, or serves
no metrics has no figures: that is not the same as zero.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlencode

from regency.cli.asking.config_requests import BROKER, DESCRIBE_VERSION
from regency.clients.nodes import Node
from regency.kafka.peer import PeerConnection, PeerUnavailable
from regency.model.ids import BrokerId

TIMEOUT_S = 1.0
AT_ONCE: Final = 32
MOST_BYTES: Final = 16 << 20
"""An answer that is larger is none of an agent that was asked for a few families."""
NO_SERIES: Final = "-"
"""In the place of a label: the agent knows the metric, and has nothing to tell."""
BYTES_IN: Final = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT: Final = "kafka_server_brokertopicmetrics_bytesout_total"
FOLLOWER_LAG: Final = "regency_follower_lag_records"
LAG_UNKNOWN: Final = "regency_follower_lag_unknown_partitions"
GROUP_MEMBERS: Final = "kafka_consumergroup_members"
GROUP_OFFSET_SUM: Final = "kafka_consumergroup_current_offset_sum"
GROUP_LAG_SUM: Final = "kafka_consumergroup_lag_sum"
GROUP_AGE: Final = "regency_consumergroup_age_seconds"
_PORT, _HOST = "regency.http.port", "regency.http.host"

Figures = Mapping[tuple[str, str], float]
"""By name of the metric and the values of its labels, in the order of their names; an empty text without any."""


class Meters:
    """Asks brokers, and remembers where each serves its metrics. One thread at a time."""

    def __init__(self) -> None:
        self._served: dict[tuple[BrokerId, str, int], tuple[str, int]] = {}

    def read(
        self, nodes: Iterable[Node], names: Sequence[str], topics: Collection[str] | None = ()
    ) -> dict[BrokerId, Figures]:
        """These metrics of each broker that tells them; of topics the sum over all, and these, or each (None)."""
        asked = list(nodes)
        if not asked:
            return {}
        with ThreadPoolExecutor(min(len(asked), AT_ONCE), thread_name_prefix="meters") as pool:
            answers = pool.map(lambda node: self._of(node, names, topics), asked)
            return {node.id: found for node, found in zip(asked, answers, strict=True) if found is not None}

    def _of(self, node: Node, names: Sequence[str], topics: Collection[str] | None) -> Figures | None:
        key = (node.id, node.host, node.port)
        try:
            if key not in self._served:
                self._served[key] = _served_at(node)
            host, port = self._served[key]
            if port <= 0:
                return None
            chosen = () if topics is None else ("", *topics)
            query = urlencode([("name[]", name) for name in names] + [("topic[]", each) for each in chosen])
            return parsed(get(host, port, f"/metrics?{query}", timeout_s=TIMEOUT_S), names)
        except (OSError, ValueError, PeerUnavailable):
            self._served.pop(key, None)  # its settings may be others after a restart
            return None


def _served_at(node: Node) -> tuple[str, int]:
    """Host and port of a broker's metrics; its own host where all interfaces serve them. Raises PeerUnavailable."""
    from regency.kafka.codec import DescribeConfigsRequest

    wanted = DescribeConfigsRequest.DescribeConfigsResource(
        version=DESCRIBE_VERSION, resource_type=BROKER, resource_name=str(node.id), configuration_keys=[_PORT, _HOST]
    )
    limit = int(TIMEOUT_S * 1000)
    peer = PeerConnection(
        node.host, node.port, client_id="regency-cli", connect_timeout_ms=limit, request_timeout_ms=limit
    )
    try:
        request = DescribeConfigsRequest(
            version=DESCRIBE_VERSION, resources=[wanted], include_synonyms=False, include_documentation=False
        )
        told = peer.exchange(request, DESCRIBE_VERSION)
    finally:
        peer.close()
    found = {config.name: config.value for result in told.results for config in result.configs}
    host = found.get(_HOST) or node.host
    everywhere = host in ("0.0.0.0", "::")  # noqa: S104 (compared, not bound)
    return node.host if everywhere else host, int(found.get(_PORT) or -1)


def get(host: str, port: int, target: str, *, timeout_s: float) -> str:
    """The body of a page; all of it within the time. Raises OSError, ValueError where it is none."""
    deadline = time.monotonic() + timeout_s
    with socket.create_connection((host, port), timeout_s) as link:
        link.sendall(f"GET {target} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        received = bytearray()
        while True:
            link.settimeout(max(0.001, deadline - time.monotonic()))
            piece = link.recv(1 << 16)
            if not piece:
                break
            received += piece
            if len(received) > MOST_BYTES or time.monotonic() > deadline:
                raise TimeoutError(f"{host}:{port} did not end its answer")
    head, parted, body = bytes(received).partition(b"\r\n\r\n")
    if not parted or head.split(b" ", 2)[1:2] != [b"200"]:
        raise ValueError(f"{host}:{port} answered {head[:60]!r}")
    return body.decode()


def parsed(text: str, names: Collection[str]) -> Figures:
    """The samples of these names in Prometheus' text; a gauge without any gets NO_SERIES. Raises ValueError."""
    from prometheus_client.parser import text_string_to_metric_families

    found = {}
    for family in text_string_to_metric_families(text):
        if family.name in names and not family.samples:
            found[family.name, NO_SERIES] = 0.0
        for sample in family.samples:
            if sample.name in names:
                found[sample.name, ",".join(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found
