"""What hostile clients can take of an agent: of the data loop's time, and of memory."""

from __future__ import annotations

import socket
import struct
import time
import zlib
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from regency.broker_agent.wire.codec import (
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
    encode_request,
)
from regency.broker_agent.wire.peer import PeerConnection
from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration

MIB = 1 << 20
LONGEST_STEP_S = 0.05
BUDGET = 32 * MIB


def batch(body: bytes, attributes: int = 0, greatest: int = 2000) -> bytes:
    """Of one record, if the body holds one; timestamps from 1000 on."""
    rest = struct.pack(">hiqqqhii", attributes, 0, 1000, greatest, -1, -1, -1, 1) + body
    return struct.pack(">qiibI", 0, 9 + len(rest), -1, 2, crc32c(rest)) + rest


def poison() -> bytes:
    """65 KB that inflate to 64 MiB of one endless number."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    return batch(compressor.compress(b"\xff" * (64 * MIB)) + compressor.flush(), attributes=1)


def produce(records: bytes) -> Any:
    topic = ProduceRequest.TopicProduceData
    partition = topic.PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic(name="t", partition_data=[partition])])


def list_offsets(timestamp: int) -> Any:
    topic = ListOffsetsRequest.ListOffsetsTopic
    partition = topic.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[topic(name="t", partitions=[partition])])


def fetch(max_wait_ms: int = 0) -> Any:
    topic = FetchRequest.FetchTopic
    partition = topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=64 * MIB)
    topics = [topic(topic="t", partitions=[partition])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=64 * MIB, session_epoch=-1, topics=topics)


@pytest.fixture
def alone(new_cluster: Callable[..., Cluster], create_topic: Callable[..., None]) -> Cluster:
    """One broker that leads one partition."""
    cluster = new_cluster(brokers=1, settings={"regency.queued.max.response.bytes": str(BUDGET)})
    create_topic(cluster, partitions=1, replication=1)
    return cluster


@pytest.fixture
def address(alone: Cluster) -> tuple[str, int]:
    host, _, port = alone.bootstrap_servers.rpartition(":")
    return host, int(port)


@pytest.fixture
def ask(address: tuple[str, int]) -> Callable[[Any, int], Any]:
    """ask(message, version): the answer."""
    peer = PeerConnection(*address, client_id="test", connect_timeout_ms=5_000, request_timeout_ms=60_000)
    with closing(peer):
        yield peer.exchange


def test_poison_and_large_requests_leave_the_loop_to_others(
    alone: Cluster, ask: Callable[[Any, int], Any], scrapes: Callable[..., Any], eventually: Any
) -> None:
    scraped = scrapes(alone)
    before = scraped.agent(1).one("regency_loop_step_seconds", clock="cpu", quantile="1")
    for body in (poison(), batch(b"\xff" * 900_000)):
        assert ask(produce(body), 9).responses[0].partition_responses[0].error_code == 0
    for timestamp in (1500, -3):
        [topic] = ask(list_offsets(timestamp), 7).topics
        assert (topic.partitions[0].error_code, topic.partitions[0].offset) == (0, 0)
    name = MetadataRequest.MetadataRequestTopic
    many = MetadataRequest(topics=[name(name=f"x{n}") for n in range(45_000)], allow_auto_topic_creation=False)
    assert len(ask(many, 12).topics) == 45_000
    time.sleep(1.1)  # an answer to a scrape may be so old
    longest = scraped.agent(1).one("regency_loop_step_seconds", clock="cpu", quantile="1")
    assert longest < max(LONGEST_STEP_S, before * 1.05)


def test_clients_that_do_not_read_take_a_bounded_amount_of_memory(
    alone: Cluster,
    address: tuple[str, int],
    ask: Callable[[Any, int], Any],
    scrapes: Callable[..., Any],
    eventually: Any,
) -> None:
    for _ in range(14):
        ask(produce(batch(bytes(900_000))), 9)
    ask(fetch(), 12)
    before = resident(alone)
    scraped = scrapes(alone)
    with ExitStack() as stack:
        for _ in range(60):
            deaf = stack.enter_context(socket.create_connection(address))
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            deaf.sendall(encode_request(12, 1, "deaf", fetch(max_wait_ms=500)))
        eventually(lambda: scraped.agent(1).sum("regency_fetches_held_back_total") >= 40, what="the budget is used up")
        assert scraped.agent(1).sum("regency_unsent_answer_bytes") < BUDGET + 11 * MIB
        ask(produce(batch(b"others are served")), 9)
        assert resident(alone) - before < 3 * BUDGET
    [topic] = ask(fetch(max_wait_ms=500), 12).responses
    assert len(topic.partitions[0].records) > 9 * MIB


def resident(cluster: Cluster) -> int:
    """Bytes of memory of the agent."""
    pages = Path(f"/proc/{cluster.pid(1)}/statm").read_text("ascii").split()[1]
    return int(pages) * 4096
