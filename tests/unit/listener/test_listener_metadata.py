from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from regency.broker_agent.control.admin_forwarder import NotController
from regency.broker_agent.control.metadata_cache import PartitionMetadata, RulingController
from regency.kafka.codec import DescribeClusterRequest, MetadataRequest, parse_forwarded
from regency.model.facts import Endpoint
from regency.model.ids import BrokerId, ControllerEpoch, LeaderEpoch, ZkVersion
from regency.model.kafka_errors import ErrorCode
from regency.protos.admin_pb2 import EnvelopeReply, Outcome

Serve = Callable[..., None]
ASKED = MetadataRequest.MetadataRequestTopic


def topic_id(name: str) -> UUID:
    """What the harness gives a topic as its id."""
    return UUID(bytes=name.encode().ljust(16, b"-")[:16])


def named(*names: str, create: bool = True, **options: Any) -> Any:
    topics = [ASKED(name=name, topic_id=None) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create, **options)


def partition(number: int, leader: int, *, offline: tuple[int, ...] = ()) -> PartitionMetadata:
    replicas = (BrokerId(1), BrokerId(2), BrokerId(3))
    gone = tuple(BrokerId(broker) for broker in offline)
    return PartitionMetadata(number, BrokerId(leader), LeaderEpoch(7), ZkVersion(0), replicas[:2], replicas, gone)


def errors(answer: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


@pytest.mark.parametrize("version", range(1, 13))
def test_every_version_tells_brokers_topics_and_leaders(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", 2, leader=2)

        answer = await (await h.connect()).ask(named("t"), version)

        brokers = [(broker.node_id, broker.host, broker.port, broker.rack) for broker in answer.brokers]
        assert brokers == [
            (1, "127.0.0.1", h.port, "rack1"),
            (2, "127.0.0.1", 9092, "rack2"),
            (3, "127.0.0.1", 9093, "rack3"),
        ]
        assert answer.controller_id == 1
        assert answer.cluster_id == ("cluster-id" if version >= 2 else None)
        (topic,) = answer.topics
        assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
        assert topic.topic_id == (topic_id("t") if version >= 10 else None)
        told = [(p.error_code, p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions]
        assert told == [(0, 0, 2, [1, 2, 3], [1, 2]), (0, 1, 2, [1, 2, 3], [1, 2])]
        assert [p.leader_epoch for p in topic.partitions] == ([7, 7] if version >= 7 else [-1, -1])

    serve(scenario)


def test_no_list_means_all_topics_and_an_empty_one_none(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        for name in ("b", "a", "__consumer_offsets"):
            h.with_topic(name)
        client = await h.connect()

        everything = await client.ask(MetadataRequest(topics=None), 9)
        nothing = await client.ask(MetadataRequest(topics=[]), 9)

        assert [(topic.name, topic.is_internal) for topic in everything.topics] == [
            ("__consumer_offsets", True),
            ("a", False),
            ("b", False),
        ]
        assert nothing.topics == []

    serve(scenario)


def test_a_topic_named_twice_is_told_once(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        answer = await (await h.connect()).ask(named("t", "u", "t", create=False), 9)
        assert [topic.name for topic in answer.topics] == ["t", "u"]

    serve(scenario)


@pytest.mark.parametrize("version", [10, 11, 12])
def test_topics_are_found_by_id(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        asked = [ASKED(name=None, topic_id=topic_id(name)) for name in ("t", "gone")]
        if version < 12:
            asked = [ASKED(name="", topic_id=topic_id(name)) for name in ("t", "gone")]

        answer = await (await h.connect()).ask(MetadataRequest(topics=asked), version)

        found, missing = answer.topics
        assert (found.error_code, found.name, found.topic_id) == (0, "t", topic_id("t"))
        assert (missing.error_code, missing.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, topic_id("gone"))
        assert missing.name == (None if version == 12 else "")

    serve(scenario)


def test_a_partition_without_a_live_leader_says_so(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.topics["t"] = [partition(0, -1), partition(1, 3, offline=(2,))]
        del h.endpoints[3]
        h.publish()

        (topic,) = (await (await h.connect()).ask(named("t"), 9)).topics

        told = [(p.error_code, p.leader_id, p.leader_epoch, p.offline_replicas) for p in topic.partitions]
        assert told == [
            (ErrorCode.LEADER_NOT_AVAILABLE, -1, 7, [3]),
            (ErrorCode.LEADER_NOT_AVAILABLE, -1, 7, [2, 3]),
        ]
        assert topic.error_code == 0

    serve(scenario)


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)])
def test_a_leader_without_the_listener_the_client_came_in_on_is_not_shown(
    serve: Serve, version: int, error: ErrorCode
) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", leader=2)
        h.endpoints[2] = (Endpoint("INNER", "inner2", 7070),)
        h.publish()

        answer = await (await h.connect()).ask(named("t"), version)

        assert [broker.node_id for broker in answer.brokers] == [1, 3]
        (told,) = answer.topics[0].partitions
        assert (told.error_code, told.leader_id, told.offline_replicas) == (error, -1, [2])

    serve(scenario)


def test_every_listener_tells_its_own_endpoints(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        inner = await h.listener.start(Endpoint("INNER", "127.0.0.1", 0))
        outside, inside = await h.connect(), await h.connect(inner)

        told = [
            [broker.host for broker in (await client.ask(MetadataRequest(topics=[]), 9)).brokers]
            for client in (outside, inside, outside)
        ]

        assert told == [["127.0.0.1"] * 3, ["inner1", "inner2", "inner3"], ["127.0.0.1"] * 3]

    serve(scenario)


def test_authorized_operations_are_told_only_where_asked_for(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        client = await h.connect()
        without = await client.ask(named("t"), 8)
        asking = named("t", include_cluster_authorized_operations=True, include_topic_authorized_operations=True)
        with_them = await client.ask(asking, 8)

        assert (without.authorized_operations, without.topics[0].authorized_operations) == (None, None)
        assert {8, 9, 12} <= with_them.authorized_operations
        assert {3, 4, 8} <= with_them.topics[0].authorized_operations

    serve(scenario)


def test_answers_follow_the_metadata(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        leaders = []
        for leader in (1, 2, -1):
            h.with_topic("t", leader=leader)
            for _ in range(2):
                answer = await client.ask(named("t"), 9)
                leaders.append(answer.topics[0].partitions[0].leader_id)

        assert leaders == [1, 1, 2, 2, -1, -1]

    serve(scenario)


@pytest.mark.parametrize(("asks", "enabled"), [(False, True), (True, False)])
def test_an_unknown_topic_is_unknown_where_creation_is_not_wanted(serve: Serve, asks: bool, enabled: bool) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        for _ in range(2):
            assert errors(await client.ask(named("t", create=asks), 9)) == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert h.admin.forwarded == []

    serve(scenario, auto_create_topics_enable=enabled)


def test_an_internal_topic_is_not_created_because_somebody_asks_for_it(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        answer = await (await h.connect()).ask(named("__consumer_offsets"), 9)
        assert errors(answer) == {"__consumer_offsets": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert h.admin.forwarded == []

    serve(scenario)


def test_a_topic_is_created_because_it_is_asked_for(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        first = await client.ask(named("t"), 9)
        await h.eventually(lambda: "t" in h.metadata.current.topics, "it is created")
        second = await client.ask(named("t"), 9)

        assert errors(first) == {"t": ErrorCode.LEADER_NOT_AVAILABLE}
        assert errors(second) == {"t": 0}
        ((envelope, options),) = h.admin.forwarded
        request = parse_forwarded(envelope.api_key, envelope.api_version, envelope.client_id, envelope.request)
        (topic,) = request.message.topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 4, 2)
        assert (request.message.validate_only, options) == (False, {"timeout_ms": 30_000, "require_local": False})
        assert (envelope.principal_name, envelope.client_id) == ("ANONYMOUS", "test"), "the client that asked"

    serve(scenario, num_partitions=4, default_replication_factor=2)


@pytest.mark.parametrize("version", [1, 3, 4])
def test_versions_that_cannot_say_no_create_topics(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        assert errors(await (await h.connect()).ask(named("t"), version)) == {"t": ErrorCode.LEADER_NOT_AVAILABLE}
        await h.eventually(lambda: "t" in h.metadata.current.topics, "it is created")

    serve(scenario)


def test_a_topic_is_created_once_however_many_ask(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.admin.hold = release = asyncio.Event()
        clients = [await h.connect() for _ in range(3)]
        for client in clients:
            assert errors(await client.ask(named("t"), 9)) == {"t": ErrorCode.LEADER_NOT_AVAILABLE}
        release.set()
        await h.eventually(lambda: "t" in h.metadata.current.topics, "it is created")

        assert len(h.admin.forwarded) == 1

    serve(scenario)


@pytest.mark.parametrize("name", ["", ".", "a b", "x" * 250, "ü"])
@pytest.mark.parametrize("create", [True, False])
def test_an_invalid_name_is_told_and_never_created(serve: Serve, name: str, create: bool) -> None:
    async def scenario(h: Any) -> None:
        answer = await (await h.connect()).ask(named(name, create=create), 9)
        assert errors(answer) == {name: ErrorCode.INVALID_TOPIC_EXCEPTION}
        assert h.admin.forwarded == []

    serve(scenario)


def test_too_few_brokers_for_the_default_replication_factor_are_told(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        answer = await (await h.connect()).ask(named("t"), 9)
        assert errors(answer) == {"t": ErrorCode.INVALID_REPLICATION_FACTOR}

    serve(scenario, default_replication_factor=4)


@pytest.mark.parametrize("failure", [NotController("nobody rules"), RuntimeError("a bug")])
def test_a_failed_creation_is_logged_and_tried_again(
    serve: Serve, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    async def scenario(h: Any) -> None:
        h.admin.fail = failure
        client = await h.connect()
        await client.ask(named("t"), 9)
        await h.eventually(lambda: "did not create t" in caplog.text, "it failed")
        h.admin.fail = None
        await client.ask(named("t"), 9)
        await h.eventually(lambda: "t" in h.metadata.current.topics, "it is created")

    serve(scenario)


@pytest.mark.parametrize("as_a_whole", [True, False])
def test_a_refused_creation_is_logged(serve: Serve, caplog: pytest.LogCaptureFixture, as_a_whole: bool) -> None:
    async def scenario(h: Any) -> None:
        h.admin.refuse = ErrorCode.POLICY_VIOLATION
        if as_a_whole:
            h.admin.reply = EnvelopeReply(outcome=Outcome(error_code=ErrorCode.POLICY_VIOLATION))
        await (await h.connect()).ask(named("t"), 9)
        await h.eventually(lambda: "POLICY_VIOLATION" in caplog.text, "it is refused")

    serve(scenario)


def test_describe_cluster_tells_brokers_and_controller(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        answer = await client.ask(DescribeClusterRequest(), 0)
        asking = await client.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 0)

        assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "cluster-id", 1)
        assert [(broker.broker_id, broker.port, broker.rack) for broker in answer.brokers] == [
            (1, h.port, "rack1"),
            (2, 9092, "rack2"),
            (3, 9093, "rack3"),
        ]
        assert answer.authorized_operations is None
        assert 8 in asking.authorized_operations

    serve(scenario)


def test_describe_cluster_tells_the_endpoints_of_controllers_to_who_asks_for_them(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.endpoints[2] = (*h.endpoints[2], Endpoint("CONTROLLER", "c2", 5002))
        h.endpoints[3] = (*h.endpoints[3], Endpoint("CONTROLLER", "c3", 5003))
        h.publish()
        client = await h.connect()

        brokers = await client.ask(DescribeClusterRequest(endpoint_type=1), 1)
        controllers = await client.ask(DescribeClusterRequest(endpoint_type=2), 1)
        others = await client.ask(DescribeClusterRequest(endpoint_type=3), 1)

        assert (brokers.endpoint_type, [broker.broker_id for broker in brokers.brokers]) == (1, [1, 2, 3])
        assert (controllers.endpoint_type, controllers.controller_id) == (2, 1)
        assert [(each.broker_id, each.host, each.port) for each in controllers.brokers] == [
            (2, "c2", 5002),
            (3, "c3", 5003),
        ]
        assert others.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE

    serve(scenario)


def test_describe_cluster_names_a_controller_that_rules_though_its_broker_is_not_live(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.publish()
        h.metadata.saw_controller(RulingController(BrokerId(9), ControllerEpoch(99), "[::1]:5009"))
        client = await h.connect()

        brokers = await client.ask(DescribeClusterRequest(endpoint_type=1), 1)
        controllers = await client.ask(DescribeClusterRequest(endpoint_type=2), 1)

        assert [broker.broker_id for broker in brokers.brokers] == [1, 2, 3]
        assert [(each.broker_id, each.host, each.port) for each in controllers.brokers] == [(9, "::1", 5009)]

    serve(scenario)


def test_an_agent_without_metadata_lets_a_client_wait_for_the_first_instead_of_denying_its_topic(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        asking = asyncio.create_task(client.ask(named("t", create=False), 12))
        await h.eventually(lambda: bool(h.metadata._subscribers), "the handler waits")
        h.with_topic("t", 1, leader=2)

        answer = await asking

        assert errors(answer) == {"t": 0}
        assert [broker.node_id for broker in answer.brokers] == [1, 2, 3]

    serve(scenario, published=False)


def test_an_agent_without_metadata_does_not_say_that_there_are_no_brokers(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        client, other = await h.connect(), await h.connect()
        asking = asyncio.create_task(client.ask(DescribeClusterRequest(), 0))
        await h.eventually(lambda: bool(h.metadata._subscribers), "the handler waits")
        controllers = await other.ask(DescribeClusterRequest(endpoint_type=2), 1)
        assert list(controllers.brokers) == [], "who looks for a controller is told at once"
        h.publish()
        assert [broker.broker_id for broker in (await asking).brokers] == [1, 2, 3]

    serve(scenario, published=False)
