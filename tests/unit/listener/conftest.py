"""A listener on loopback over fakes of the ReplicaManager, the controller and ZooKeeper, and a raw client that
speaks the codec."""

from __future__ import annotations

import asyncio
import importlib.util
import struct
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest

from regency.broker_agent.control.metadata_cache import (
    BrokerNode,
    MetadataCache,
    MetadataChange,
    MetadataUpdate,
    PartitionMetadata,
    TopicDelta,
)
from regency.broker_agent.groups.coordinator import GroupCoordinator
from regency.broker_agent.listener.server import KafkaListener
from regency.kafka.apis import ApiKey
from regency.kafka.codec import Message, decode_response, encode_request
from regency.kafka.groups.placement import OFFSETS_TOPIC
from regency.model.clock import SystemClock
from regency.model.facts import Endpoint
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion
from regency.model.settings import BrokerSettings

LISTENER = "PLAINTEXT"


def _load_fakes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("listener_fakes", Path(__file__).with_name("fakes.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fakes = _load_fakes()


class Client:
    """A raw connection. Timeouts only keep a broken test from hanging."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0
        self._sent: list[tuple[int, ApiKey, int]] = []

    def send(self, message: Message, version: int, *, client_id: str = "test") -> None:
        self._correlation_id += 1
        self._sent.append((self._correlation_id, ApiKey(message.API_KEY), version))
        self.writer.write(encode_request(version, self._correlation_id, client_id, message))

    async def receive(self) -> Message:
        """The next answer, which must belong to the oldest unanswered request."""
        correlation_id, api, version = self._sent.pop(0)
        answered, message = decode_response(api, version, await self.receive_frame())
        assert answered == correlation_id
        return message

    async def receive_frame(self) -> bytes:
        size = int.from_bytes(await asyncio.wait_for(self.reader.readexactly(4), 10), "big")
        return await asyncio.wait_for(self.reader.readexactly(size), 10)

    async def ask(self, message: Message, version: int) -> Message:
        self.send(message, version)
        return await self.receive()

    async def closed_by_listener(self) -> bool:
        """Wait for the end of the stream; False when bytes come instead."""
        try:
            return await asyncio.wait_for(self.reader.read(1), 10) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


class Harness:
    """A listener of broker 1 among brokers 1, 2 and 3, and what it talks to."""

    def __init__(self, *, published: bool = True, **settings: Any) -> None:
        self.settings = BrokerSettings(broker_id=BrokerId(1), **settings)
        self.replicas = fakes.FakeReplicas()
        self.sessions = fakes.FakeSessions()
        self.metadata = MetadataCache()
        self.admin = fakes.FakeAdmin()
        self.admin.created = self.with_topic
        self.producer_ids = fakes.FakeProducerIds()
        self.configs = fakes.FakeConfigs()
        self.topics: dict[str, list[PartitionMetadata]] = {}
        self.endpoints: dict[int, tuple[Endpoint, ...]] = {
            broker: (Endpoint(LISTENER, "127.0.0.1", 9090 + broker), Endpoint("INNER", f"inner{broker}", 7070))
            for broker in (1, 2, 3)
        }
        zookeeper = fakes.FakeZooKeeper()
        self.groups = GroupCoordinator(
            self.settings,
            self.replicas,
            self.metadata,
            zookeeper,
            zookeeper,
            SystemClock(),
            lambda milliseconds, work: asyncio.get_running_loop().call_later(milliseconds / 1000, work),
            uuid4,
        )
        self.listener = KafkaListener(
            self.settings,
            self.replicas,
            self.sessions,
            self.metadata,
            self.admin,
            self.producer_ids,
            self.configs,
            self.groups,
            "cluster-id",
            SystemClock(),
        )
        self.port = 0
        self._clients: list[Client] = []
        self._published = published

    def publish(self) -> None:
        """Let the metadata show brokers and topics as they are set here; broker 1 rules in epoch 5."""
        brokers = [
            BrokerNode(BrokerId(broker), BrokerEpoch(100 + broker), endpoints, f"rack{broker}")
            for broker, endpoints in sorted(self.endpoints.items())
        ]
        topics = [
            TopicDelta(name, fakes.topic_id(name), partitions) for name, partitions in sorted(self.topics.items())
        ]
        refused = self.metadata.apply(
            MetadataUpdate(ControllerEpoch(5), BrokerId(1), [MetadataChange(brokers, topics)], 1, True, True, True)
        )
        assert refused is None

    def with_topic(self, name: str, partitions: int = 1, leader: int = 1, *, hosted: bool = True) -> None:
        """A topic that broker `leader` leads; hosted: with a log here."""
        self.topics[name] = [
            PartitionMetadata(
                number,
                BrokerId(leader),
                LeaderEpoch(7),
                ZkVersion(0),
                (BrokerId(1), BrokerId(2)),
                (BrokerId(1), BrokerId(2), BrokerId(3)),
            )
            for number in range(partitions)
        ]
        if hosted:
            for number in range(partitions):
                self.replicas.logs[TopicPartition(name, number)] = []
        self.publish()

    async def lead_groups(self) -> None:
        """This broker leads the only partition of the topic of offsets, and has loaded it."""
        self.with_topic(OFFSETS_TOPIC)
        self.replicas.leading(TopicPartition(OFFSETS_TOPIC, 0), LeaderEpoch(7))
        await self.eventually(lambda: not self.groups.loading, "the partition was loaded")

    async def start(self) -> None:
        self.port = await self.listener.start(Endpoint(LISTENER, "127.0.0.1", 0))
        self.endpoints[1] = (Endpoint(LISTENER, "127.0.0.1", self.port), *self.endpoints[1][1:])
        if self._published:
            self.publish()

    async def connect(self, port: int | None = None) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", port or self.port))
        self._clients.append(client)
        return client

    async def eventually(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; give up after ten seconds, saying for what."""

        async def look() -> None:
            while not condition():
                await asyncio.sleep(0.005)

        try:
            await asyncio.wait_for(look(), 10)
        except TimeoutError:
            raise AssertionError(f"waited in vain until {what}") from None

    async def stop(self) -> None:
        for client in self._clients:
            await client.close()
        await self.listener.stop(grace_ms=0)


Scenario = Callable[[Harness], Awaitable[None]]


@pytest.fixture
def serve() -> Callable[..., None]:
    """serve(scenario, **settings): run an async scenario against a fresh listener."""

    def run(scenario: Scenario, **settings: Any) -> None:
        async def main() -> None:
            harness = Harness(**settings)
            await harness.start()
            try:
                await scenario(harness)
            finally:
                await harness.stop()

        asyncio.run(main())

    return run


@pytest.fixture
def batch() -> Callable[..., bytes]:
    """batch(records=1, attributes=0, magic=2): a record batch whose header is plausible and whose records are not
    there."""

    def build(records: int = 1, attributes: int = 0, magic: int = 2, payload: bytes = b"payload") -> bytes:
        after_length = struct.pack(">ibIhiqqqhii", -1, magic, 0, attributes, records - 1, 0, 0, -1, -1, -1, records)
        return struct.pack(">qi", 0, len(after_length) + len(payload)) + after_length + payload

    return build
