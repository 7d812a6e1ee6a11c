from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pytest

from regency.broker_agent.control.admin_forwarder import NewTopicSpec, NotController
from regency.kafka.codec import CreateTopicsRequest
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode

Serve = Callable[..., None]
TOPIC = CreateTopicsRequest.CreatableTopic


def new(
    name: str,
    partitions: int = -1,
    factor: int = -1,
    *,
    assignments: Mapping[int, list[int]] | None = None,
    configs: Mapping[str, str | None] | None = None,
) -> Any:
    return TOPIC(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            TOPIC.CreatableReplicaAssignment(partition_index=partition, broker_ids=brokers)
            for partition, brokers in (assignments or {}).items()
        ],
        configs=[TOPIC.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def create(*topics: Any, **options: Any) -> Any:
    return CreateTopicsRequest(topics=list(topics), **{"timeout_ms": 5000, **options})


def errors(answer: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        answer = await (await h.connect()).ask(create(new("t", 3, 2, configs={"retention.ms": "1000"})), version)

        assert h.admin.asked == [([NewTopicSpec("t", 3, 2, configs={"retention.ms": "1000"})], False, 5000, True)]
        (topic,) = answer.topics
        assert (topic.error_code, topic.error_message) == (0, None)
        if version >= 5:
            assert (topic.num_partitions, topic.replication_factor) == (3, 2)
            assert [(config.name, config.value) for config in topic.configs] == [("retention.ms", "1000")]
        if version >= 7:
            assert topic.topic_id == UUID(bytes=b"t".ljust(16, b"-"))

    serve(scenario)


def test_defaults_are_this_brokers(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        await (await h.connect()).ask(create(new("t"), new("u", 5, -1)), 5)
        assert h.admin.asked[0][0] == [NewTopicSpec("t", 4, 3), NewTopicSpec("u", 5, 3)]

    serve(scenario, num_partitions=4, default_replication_factor=3)


def test_assignments_are_passed_on(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        answer = await (await h.connect()).ask(create(new("t", assignments={1: [2, 3], 0: [1, 2]})), 5)
        wanted = {0: (BrokerId(1), BrokerId(2)), 1: (BrokerId(2), BrokerId(3))}
        assert h.admin.asked[0][0] == [NewTopicSpec("t", assignments=wanted)]
        assert errors(answer) == {"t": 0}

    serve(scenario)


def test_validation_alone_creates_nothing(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        answer = await (await h.connect()).ask(create(new("t", 1, 1), validate_only=True), 5)
        assert errors(answer) == {"t": 0}
        assert h.admin.asked[0][1] is True
        assert h.metadata.current.topics == {}

    serve(scenario)


@pytest.mark.parametrize(
    ("topic", "error", "says"),
    [
        (new("bad name", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, "contains ' '"),
        (new("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, "folders"),
        (new("t", 0, 1), ErrorCode.INVALID_PARTITIONS, "not 0"),
        (new("t", -2, 1), ErrorCode.INVALID_PARTITIONS, "not -2"),
        (new("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "not 0"),
        (new("t", 1, 1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST, "not both"),
        (new("t", assignments={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "from 0"),
        (new("t", assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replicas"),
        (new("t", assignments={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a broker twice"),
        (new("t", assignments={0: [1], 1: [1, 2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "same number"),
        (new("t", 1, 1, configs={"retention": "1"}), ErrorCode.INVALID_CONFIG, "retention"),
        (new("t", 1, 1, configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (new("t", 1, 1, configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG, "no value"),
    ],
)
def test_what_cannot_be_created_is_refused_with_a_reason_and_the_rest_created(
    serve: Serve, topic: Any, error: ErrorCode, says: str
) -> None:
    async def scenario(h: Any) -> None:
        answer = await (await h.connect()).ask(create(topic, new("good", 1, 1)), 7)

        assert errors(answer) == {topic.name: error, "good": 0}
        refused = next(result for result in answer.topics if result.name == topic.name)
        assert says in refused.error_message
        assert (refused.num_partitions, refused.replication_factor, refused.configs) == (-1, -1, [])
        assert [[spec.name for spec in asked] for asked, *_ in h.admin.asked] == [["good"]]

    serve(scenario)


def test_a_topic_named_twice_is_refused(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        answer = await (await h.connect()).ask(create(new("t", 1, 1), new("t", 2, 1)), 5)
        assert errors(answer) == {"t": ErrorCode.INVALID_REQUEST}
        assert h.admin.asked == []

    serve(scenario)


def test_a_partition_assigned_twice_is_refused(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        topic = new("t", assignments={0: [1]})
        topic.assignments = topic.assignments * 2
        answer = await (await h.connect()).ask(create(topic), 5)
        assert errors(answer) == {"t": ErrorCode.INVALID_REPLICA_ASSIGNMENT}

    serve(scenario)


def test_whoever_does_not_rule_says_so(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.admin.fail = NotController("broker 2 rules")
        answer = await (await h.connect()).ask(create(new("t", 1, 1), new("bad name", 1, 1)), 5)
        assert errors(answer) == {"t": ErrorCode.NOT_CONTROLLER, "bad name": ErrorCode.NOT_CONTROLLER}

    serve(scenario)


def test_the_controllers_refusal_is_passed_on(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.admin.refuse = ErrorCode.TOPIC_ALREADY_EXISTS
        (topic,) = (await (await h.connect()).ask(create(new("t", 1, 1)), 5)).topics
        assert (topic.error_code, topic.error_message) == (36, "refused by the controller")

    serve(scenario)


def test_a_failure_is_told_for_every_topic(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.admin.fail = RuntimeError("a bug")
        answer = await (await h.connect()).ask(create(new("t", 1, 1), new("u", 1, 1)), 5)
        assert errors(answer) == {"t": -1, "u": -1}

    serve(scenario)
