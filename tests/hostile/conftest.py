"""One agent with little of everything, a client that only wants to work, and peers that do whatever they can."""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from crc32c import crc32c

from regency.cluster.cluster import Cluster
from regency.kafka import codec
from regency.kafka.apis import OFFERED, ApiKey

LONGEST_STEP = 'regency_loop_step_seconds{clock="cpu",quantile="1"}'
"""Of the last five minutes, which is all of an agent's life here."""
MOST_STEP_S = 0.05
"""Of the loop's own thread: what others take of the processor meanwhile does not count."""
BUDGET = 64 << 20
"""Of unsent answers."""
INCOMING_BUDGET = 16 << 20
"""Of requests that have not come in whole."""
MOST_MEMORY_KB = 400 << 10
"""Resident."""
MOST_NEW_DESCRIPTORS = 8
"""That an agent keeps of all that its peers did: a log may have rolled, nothing else stays."""
MOST_WAIT_S = 5.0
"""Of the client's records for their acknowledgement: long, since hostile peers and it share two cores."""
SETTINGS = {
    "regency.queued.max.response.bytes": str(BUDGET),
    "queued.max.request.bytes": str(INCOMING_BUDGET),
    "connections.max.idle.ms": "5000",
    "auto.create.topics.enable": "false",
    "num.partitions": "4",
}
DIRECTORY = Path(__file__).parent


class Victim:
    """The agent, as its peers and its owner see it."""

    def __init__(self, cluster: Cluster, flag: Path, stack: ExitStack) -> None:
        self.cluster = cluster
        self.budget, self.incoming_budget = BUDGET, INCOMING_BUDGET
        self.flag = flag
        """While it exists, writes hang."""
        self.ports = cluster.state.brokers[0].ports
        self._stack = stack

    def connect(self, listener: str = "PLAINTEXT") -> socket.socket:
        """A connection that is closed with the test. Raises OSError where it is refused."""
        return self._stack.enter_context(socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=10))

    def ask(self, message: Any, version: int) -> Any:
        """The answer to a request on a connection of its own; None where that is ended instead."""
        with socket.create_connection(("127.0.0.1", self.ports["PLAINTEXT"]), timeout=60) as peer:
            try:
                peer.sendall(codec.encode_request(version, 7, "hostile", message))
                frame = received(peer)
            except ConnectionError:
                return None
        return None if frame is None else codec.decode_response(ApiKey(message.API_KEY), version, frame)[1]

    def produce(self, topic: str, batch: bytes) -> None:
        kind = codec.ProduceRequest.TopicProduceData
        records = kind.PartitionProduceData(version=9, index=0, records=batch)
        data = kind(version=9, name=topic, partition_data=[records])
        answer = self.ask(codec.ProduceRequest(version=9, acks=-1, timeout_ms=10_000, topic_data=[data]), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0

    def metric(self, sample: str) -> float:
        """A sample of the agent's metrics, by name and labels as they are written there."""
        metrics = urlopen(f"http://127.0.0.1:{self.ports['HTTP']}/metrics", timeout=20).read().decode()
        [line] = [line for line in metrics.splitlines() if line.startswith(sample)]
        return float(line.split()[-1])

    def connections(self) -> float:
        """Open ones at the Kafka listener."""
        return self.metric('kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"')

    def descriptors(self) -> int:
        """Open ones, of 256."""
        return len(list(Path(f"/proc/{self.cluster.pid(1)}/fd").iterdir()))

    def peak_memory_kb(self) -> int:
        status = Path(f"/proc/{self.cluster.pid(1)}/status").read_text("ascii")
        [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1])


class Honest:
    """Writes a record every 10 ms with acks=all for as long as it is told to, and reads them back."""

    TOPIC = "honest"

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "log_level": 0})
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._waits: list[float] = []
        self._refused: list[KafkaError] = []
        self._sent = 0
        self._thread.start()

    @property
    def is_served(self) -> bool:
        """It has a connection to the leader, which it keeps: peers may take up all others."""
        return bool(self._waits)

    def judge(self) -> None:
        """End when it has written some, and see that all was taken in time and is there: peers may be done at once."""
        while self._sent <= 20:
            assert self._thread.is_alive()
            time.sleep(0.01)
        self._enough.set()
        self._thread.join()
        assert self._producer.flush(30) == 0, "records wait for their acknowledgement"
        assert not self._refused
        assert max(self._waits) < MOST_WAIT_S
        assert self._read() == [b"%d" % number for number in range(self._sent)]

    def _write(self) -> None:
        while not self._enough.wait(0.01):
            self._producer.produce(self.TOPIC, b"%d" % self._sent, partition=0, on_delivery=self._on_delivery())
            self._sent += 1
            self._producer.poll(0)

    def _on_delivery(self) -> Callable[[KafkaError | None, object], None]:
        began = time.monotonic()

        def delivered(error: KafkaError | None, _: object) -> None:
            self._waits.append(time.monotonic() - began)
            if error is not None:
                self._refused.append(error)

        return delivered

    def _read(self) -> list[bytes]:
        consumer = Consumer(
            {"bootstrap.servers": self._servers, "group.id": "x", "enable.auto.commit": False, "log_level": 0}
        )
        consumer.assign([TopicPartition(self.TOPIC, 0, 0)])
        read: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(read) < self._sent and time.monotonic() < deadline:
            read += [message.value() for message in consumer.consume(1000, 0.2) if message.error() is None]
        consumer.close()
        return read


@pytest.fixture
def victim(
    request: pytest.FixtureRequest, new_cluster: Callable[..., Cluster], eventually: Any, tmp_path: Path
) -> Iterator[Victim]:
    """An agent that leads topics `honest` and `t`, with a follower where the parameter is 2 brokers.

    In the end it is judged: steps, memory, descriptors, and what the client saw.
    """
    brokers: int = getattr(request, "param", 1)
    flag = tmp_path / "hang"
    command = (sys.executable, "-P", str(DIRECTORY / "limited_agent.py"), str(flag))
    with ExitStack() as stack:
        cluster = new_cluster(brokers, settings=SETTINGS, agent_command=command)
        topics = [
            NewTopic(name, num_partitions=4, replica_assignment=[list(range(1, 1 + brokers))] * 4)
            for name in (Honest.TOPIC, "t")
        ]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for created in admin.create_topics(topics).values():
            created.result(timeout=30)
        cluster.wait_healthy(20)
        victim = Victim(cluster, flag, stack)
        honest = Honest(cluster.bootstrap_servers)
        eventually(lambda: honest.is_served, what="the client's first record is acknowledged")
        most_descriptors = victim.descriptors() + MOST_NEW_DESCRIPTORS
        yield victim
        assert victim.peak_memory_kb() < MOST_MEMORY_KB
        assert victim.metric(LONGEST_STEP) < MOST_STEP_S
        assert victim.metric("regency_shortages_total") == 0, "a log lacked a descriptor that connections had"
    honest.judge()
    eventually(lambda: victim.descriptors() <= most_descriptors, what="the peers' descriptors are closed")
    assert all(cluster.broker_state(broker).name == "RUNNING" for broker in range(1, 1 + brokers))


@pytest.fixture
def batch() -> Callable[..., bytes]:
    """Makes a record batch v2 whose checksum is right, of any body."""

    def make(body: bytes, *, codec_: int = 0, count: int = 1, first_ms: int = 0, span_ms: int = 1000) -> bytes:
        times = (first_ms, first_ms + span_ms)
        rest = struct.pack(">hiqqqhii", codec_, count - 1, *times, -1, -1, -1, count) + body
        return struct.pack(">qiibI", 0, 9 + len(rest), -1, 2, crc32c(rest)) + rest

    return make


@pytest.fixture
def filled() -> Callable[..., Any]:
    """Makes a request of an API in its newest version, with `many` elements, or `many` within each first one."""

    def make(api: ApiKey, many: int, *, inner: int = 1) -> tuple[Any, int]:
        version = OFFERED[api].highest
        message = _fill(getattr(codec, _class_name(api)), version, "", [many, inner])
        if hasattr(message, "validate_only"):
            message.validate_only = True
        return message, version

    return make


def _class_name(api: ApiKey) -> str:
    return "".join(word.capitalize() for word in api.name.split("_")) + "Request"


def _fill(kind: Any, version: int, name: str, counts: list[int]) -> Any:
    made = kind(version=version)
    for field in kind.fields.values():
        if not field.for_version_q(version):
            continue
        type_name = field._json["type"]
        if type_name.startswith("[]"):
            element = getattr(kind, type_name[2:], None)
            many, inner = counts[0] if counts else 1, counts[1:]
            if element is not None:
                value: Any = [_fill(element, version, f"{name}{number}", inner) for number in range(many)]
            else:
                value = [name] * many if type_name == "[]string" else list(range(many))
        elif type_name == "string":
            value = f"t{name}"
        else:
            continue
        setattr(made, field.name, value)
    return made


def received(peer: socket.socket) -> bytes | None:
    """The next frame; None at the end of the connection."""
    with peer.makefile("rb", buffering=0) as stream:
        head = stream.read(4)
        if not head or len(head) < 4:
            return None
        size = struct.unpack(">i", head)[0]
        frame = bytearray()
        while len(frame) < size:
            piece = stream.read(size - len(frame))
            if not piece:
                return None
            frame += piece
        return bytes(frame)
