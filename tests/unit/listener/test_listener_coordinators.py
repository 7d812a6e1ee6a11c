"""FindCoordinator: who keeps a group, and the making of the topic that groups are kept in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from regency.kafka.apis import ApiKey
from regency.kafka.codec import FindCoordinatorRequest, parse_forwarded
from regency.kafka.groups.placement import OFFSETS_TOPIC
from regency.model.kafka_errors import ErrorCode

Serve = Callable[..., None]
GROUP, TRANSACTION, SHARE = 0, 1, 2


def find(*keys: str, kind: int = GROUP) -> Any:
    return FindCoordinatorRequest(key=keys[0], key_type=kind, coordinator_keys=list(keys))


def rows(answer: Any, version: int) -> list[tuple[int, int, str, int]]:
    found = answer.coordinators if version >= 4 else [answer]
    return [(each.error_code, each.node_id, each.host, each.port) for each in found]


@pytest.mark.parametrize("version", range(7))
def test_every_version_names_the_leader_at_the_listener_that_was_asked(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic(OFFSETS_TOPIC, leader=2, hosted=False)
        answer = await (await h.connect()).ask(find("g"), version)
        assert rows(answer, version) == [(0, 2, "127.0.0.1", 9092)]

    serve(scenario)


def test_several_groups_are_found_at_once(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic(OFFSETS_TOPIC)
        answer = await (await h.connect()).ask(find("a", "b"), 4)
        assert [(each.key, each.node_id, each.error_message) for each in answer.coordinators] == [
            ("a", 1, None),
            ("b", 1, None),
        ]

    serve(scenario)


@pytest.mark.parametrize("leader", [-1, 9])
def test_without_a_leader_that_lives_there_is_no_coordinator_now(serve: Serve, leader: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic(OFFSETS_TOPIC, leader=leader, hosted=False)
        answer = await (await h.connect()).ask(find("g"), 6)
        assert rows(answer, 6) == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)]

    serve(scenario)


def test_the_topic_is_made_once_with_the_settings_for_it(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.admin.hold = asyncio.Event()
        client = await h.connect()
        for _ in range(3):
            answer = await client.ask(find("g"), 3)
            assert rows(answer, 3) == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)]
        ((envelope, _),) = h.admin.forwarded
        request = parse_forwarded(envelope.api_key, envelope.api_version, "c", envelope.request)
        assert request.api_key is ApiKey.CREATE_TOPICS
        (topic,) = request.message.topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == (OFFSETS_TOPIC, 7, 2)
        assert {config.name: config.value for config in topic.configs} == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }

    serve(
        scenario,
        offsets_topic_num_partitions=7,
        offsets_topic_replication_factor=2,
        auto_create_topics_enable=False,
    )


def test_with_too_few_brokers_the_topic_is_not_asked_for_and_the_log_says_why(serve: Serve, caplog: Any) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        for _ in range(5):
            await client.ask(find("g"), 3)
        assert h.admin.forwarded == []
        (told,) = [message for message in caplog.messages if "groups wait" in message]
        assert told == (
            "groups wait, as __consumer_offsets cannot be created (1 times): offsets.topic.replication.factor=4 needs "
            "4 live brokers, 3 live: start more, or lower it on all of them"
        )

    serve(scenario, offsets_topic_replication_factor=4)


@pytest.mark.parametrize(
    ("kind", "version", "error"),
    [
        (SHARE, 5, ErrorCode.INVALID_REQUEST),
        (SHARE, 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (9, 6, ErrorCode.INVALID_REQUEST),
        (9, 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_other_coordinators_are_not_there(serve: Serve, kind: int, version: int, error: ErrorCode) -> None:
    async def scenario(h: Any) -> None:
        answer = await (await h.connect()).ask(find("k", kind=kind), version)
        assert rows(answer, version) == [(error, -1, "", -1)]

    serve(scenario)


def test_a_transactional_producer_is_sent_to_where_it_is_told_that_there_are_no_transactions(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        answer = await (await h.connect()).ask(find("tx", kind=TRANSACTION), 6)
        assert rows(answer, 6) == [(0, 1, "127.0.0.1", h.port)]

    serve(scenario)
