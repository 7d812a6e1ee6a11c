"""Names and ids of topics."""

from __future__ import annotations

from uuid import UUID

import pytest

from regency.model.ids import TopicId
from regency.model.topic_ids import decode_topic_id, derive_topic_id, encode_topic_id
from regency.model.topic_names import (
    InvalidTopicName,
    is_internal,
    is_valid_topic_name,
    metric_name,
    metric_names,
    validate_topic_name,
)


@pytest.mark.parametrize("name", ["a", "flights", "A.b_c-9", "...", "__consumer_offsets", "x" * 249])
def test_names_kafka_allows_are_allowed(name: str) -> None:
    validate_topic_name(name)
    assert is_valid_topic_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "it is empty"),
        (".", "folders"),
        ("..", "folders"),
        ("x" * 250, "it has 250 characters, 249 are allowed"),
        ("a b", "it contains ' '"),
        ("a/b", "it contains '/'"),
        ("flüge", "it contains 'ü'"),
        ("a\n", "it contains '\\n'"),
    ],
)
def test_other_names_are_refused_with_the_rule_they_break(name: str, reason: str) -> None:
    assert not is_valid_topic_name(name)
    with pytest.raises(InvalidTopicName) as caught:
        validate_topic_name(name)
    assert reason in str(caught.value)
    assert caught.value.code == "invalid_topic_name"


def test_names_that_differ_in_dots_and_underscores_only_collide() -> None:
    assert metric_name("a.b") == metric_name("a_b") != metric_name("a-b")
    assert metric_names(["x", "a.b"]) == {"a_b": "a.b"}


def test_topics_brokers_keep_for_themselves_are_internal() -> None:
    assert is_internal("__consumer_offsets")
    assert not is_internal("_consumer_offsets")


def test_a_topic_id_never_changes_between_releases() -> None:
    assert encode_topic_id(derive_topic_id("mZhTgYwOSKmhZ1l1iNkOLQ", "flights", 4294967338)) == "-jobPueCUKCVIhSuuqOreA"


def test_a_topic_id_depends_on_cluster_name_and_creation() -> None:
    ids = {derive_topic_id(*identity) for identity in [("c", "t", 1), ("c", "t", 2), ("c", "u", 1), ("d", "t", 1)]}
    assert len(ids) == 4


def test_a_topic_id_is_22_characters() -> None:
    topic_id = TopicId(UUID("99985381-8c0e-48a9-a167-597588d90e2d"))
    assert encode_topic_id(topic_id) == "mZhTgYwOSKmhZ1l1iNkOLQ"
    assert decode_topic_id("mZhTgYwOSKmhZ1l1iNkOLQ") == topic_id


@pytest.mark.parametrize(
    "text",
    ["", "x", "A" * 22, "mZhTgYwOSKmhZ1l1iNkOL+", "mZhTgYwOSKmhZ1l1iNkOLR", "ü" * 22, "mZhTgYwOSKmhZ1l1iNkOLQ=="],
)
def test_other_texts_are_no_topic_id(text: str) -> None:
    with pytest.raises(ValueError, match="URL-safe base64"):
        decode_topic_id(text)
