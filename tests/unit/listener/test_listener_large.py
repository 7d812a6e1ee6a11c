"""Large requests: others are served meanwhile, and there is a bound."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from regency.broker_agent.__main__ import GC_THRESHOLDS
from regency.broker_agent.control.admin_forwarder import NotController
from regency.broker_agent.listener.apis import metadata
from regency.broker_agent.listener.stats import Closing
from regency.broker_agent.process.loop_meter import MeteredSelector
from regency.kafka.apis import ApiKey
from regency.kafka.codec import (
    AlterReplicaLogDirsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    ElectLeadersRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
    decode_response,
    encode_request,
)
from regency.kafka.decoder import MAX_ELEMENTS
from regency.model.kafka_errors import ErrorCode

Serve = Callable[..., None]
Batch = Callable[..., bytes]
LONGEST_STEP_US = 50_000
COUNT = 20_000


class Steps(list[int]):
    """Processor time of each step of the loop, in microseconds."""

    def record(self, microseconds: int, now_ms: int) -> None:
        self.append(microseconds)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    """Of every loop that the test runs. The garbage collector is set as an agent sets it."""
    recorded = Steps()

    def new_event_loop() -> asyncio.AbstractEventLoop:
        selector = MeteredSelector()
        selector.steps_cpu = recorded
        return asyncio.SelectorEventLoop(selector)

    monkeypatch.setattr(asyncio.events, "new_event_loop", new_event_loop)
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    yield recorded
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def many(api: str, records: bytes) -> tuple[Any, int]:
    match api:
        case "Metadata":
            topic = MetadataRequest.MetadataRequestTopic
            return MetadataRequest(topics=[topic(name=f"x{number}") for number in range(COUNT)]), 12
        case "ListOffsets":
            listed = ListOffsetsRequest.ListOffsetsTopic
            partitions = [listed.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(COUNT)]
            return ListOffsetsRequest(replica_id=-1, topics=[listed(name="t", partitions=partitions)]), 7
        case "CreateTopics":
            new = CreateTopicsRequest.CreatableTopic
            topics = [
                new(name=f"x{number}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
                for number in range(COUNT)
            ]
            return CreateTopicsRequest(topics=topics, timeout_ms=1000), 7
        case "DeleteTopics":
            state = DeleteTopicsRequest.DeleteTopicState
            return DeleteTopicsRequest(topics=[state(name=f"x{n}") for n in range(COUNT)], timeout_ms=1000), 6
        case "ElectLeaders":
            topic = ElectLeadersRequest.TopicPartitions
            partitions = list(range(COUNT))
            return ElectLeadersRequest(topic_partitions=[topic(topic="t", partitions=partitions)], timeout_ms=1000), 2
        case "DescribeConfigs":
            resource = DescribeConfigsRequest.DescribeConfigsResource
            named = [resource(resource_type=2, resource_name="t", configuration_keys=None)]
            named += [resource(resource_type=2, resource_name=f"x{n}", configuration_keys=None) for n in range(900)]
            return DescribeConfigsRequest(resources=named, include_synonyms=True), 4
        case "Produce":
            data = ProduceRequest.TopicProduceData
            produced = [data.PartitionProduceData(index=n, records=records) for n in range(COUNT)]
            return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data(name="t", partition_data=produced)]), 9
        case "AlterReplicaLogDirs":
            path = AlterReplicaLogDirsRequest.AlterReplicaLogDir
            moved = [
                path.AlterReplicaLogDirTopic(name=f"x{n}", partitions=[0, 1]) for n in range(MAX_ELEMENTS // 3 - 1)
            ]
            return AlterReplicaLogDirsRequest(dirs=[path(path="/d", topics=moved)]), 2
        case "Fetch":
            asked = FetchRequest.FetchTopic
            most = range(MAX_ELEMENTS - 1)
            fetched = [asked.FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1) for n in most]
            return FetchRequest(max_wait_ms=0, session_epoch=-1, topics=[asked(topic="t", partitions=fetched)]), 12
    raise ValueError(api)


@pytest.mark.parametrize(
    "api",
    [
        "Metadata",
        "ListOffsets",
        "CreateTopics",
        "DeleteTopics",
        "ElectLeaders",
        "DescribeConfigs",
        "Produce",
        "Fetch",
        "AlterReplicaLogDirs",
    ],
)
def test_a_large_request_leaves_the_loop_to_others(serve: Serve, steps: Steps, batch: Batch, api: str) -> None:
    message, version = many(api, batch())
    request = encode_request(version, 1, "x", message)

    async def scenario(h: Any) -> None:
        h.with_topic("t", COUNT if api == "Produce" else 1)
        h.admin.fail = NotController("nobody rules")
        client, other = await h.connect(), await h.connect()
        await asyncio.sleep(0.01)
        steps.clear()
        client.writer.write(request)
        asked = asyncio.create_task(client.receive_frame())
        answered_meanwhile = 0
        while not asked.done():
            await other.ask(MetadataRequest(topics=[]), 9)
            answered_meanwhile += not asked.done()
        assert max(steps) < LONGEST_STEP_US
        assert answered_meanwhile > 0
        correlation_id, _ = decode_response(ApiKey(message.API_KEY), version, await asked)
        assert correlation_id == 1
        assert h.listener.stats.handler_failures == 0

    serve(scenario, auto_create_topics_enable=False)


def test_a_request_of_too_many_elements_ends_its_connection(serve: Serve) -> None:
    topic = MetadataRequest.MetadataRequestTopic
    request = encode_request(9, 1, "x", MetadataRequest(topics=[topic(name="") for _ in range(MAX_ELEMENTS + 1)]))

    async def scenario(h: Any) -> None:
        client = await h.connect()
        client.writer.write(request)
        assert await client.closed_by_listener()
        assert h.listener.stats.closed_for[Closing.MALFORMED] == 1

    serve(scenario)


def test_what_follows_a_large_request_waits_for_it(serve: Serve) -> None:
    message, version = many("Metadata", b"")

    async def scenario(h: Any) -> None:
        client = await h.connect()
        client.send(message, version)
        client.send(MetadataRequest(topics=[]), 9)
        assert len((await client.receive()).topics) == COUNT
        assert (await client.receive()).topics == []

    serve(scenario, auto_create_topics_enable=False)


def test_large_metadata_that_several_ask_for_is_put_together_once(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    build = metadata._build

    def counting(*parts: Any) -> Any:
        built.append(parts)
        return build(*parts)

    async def scenario(h: Any) -> None:
        h.with_topic("t", partitions=2_000)
        clients = [await h.connect() for _ in range(5)]
        for client in clients:
            client.send(MetadataRequest(topics=None), 12)
        for client in clients:
            [topic] = (await client.receive()).topics
            assert (topic.error_code, len(topic.partitions)) == (ErrorCode.NONE, 2_000)
        assert len(built) == 1
        await clients[0].ask(MetadataRequest(topics=None), 12)
        assert len(built) == 1, "and kept"

    monkeypatch.setattr(metadata, "_build", counting)
    serve(scenario)
