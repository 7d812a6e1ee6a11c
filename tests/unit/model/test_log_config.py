"""Topic-level settings over a broker's."""

from __future__ import annotations

import msgspec
import pytest

from regency.model.settings import LogConfig, SettingsInvalid, applicable_log_config, topic_log_config


def test_a_topics_keys_take_the_place_of_the_brokers() -> None:
    base = LogConfig(segment_bytes=100, retention_ms=7)
    overrides = {
        "retention.ms": "-1",
        "unclean.leader.election.enable": "True",
        "min.insync.replicas": "2",
        "message.timestamp.type": "LogAppendTime",
    }
    assert topic_log_config(base, overrides) == msgspec.structs.replace(
        base,
        retention_ms=-1,
        unclean_leader_election_enable=True,
        min_insync_replicas=2,
        message_timestamp_type="LogAppendTime",
    )


def test_no_keys_change_nothing() -> None:
    base = LogConfig(segment_bytes=100)
    assert topic_log_config(base, {}) == base


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_topic_may_be_compacted(policy: str) -> None:
    assert topic_log_config(LogConfig(), {"cleanup.policy": policy}).cleanup_policy == tuple(policy.split(","))


@pytest.mark.parametrize(
    ("text", "elements"), [("", ()), ("*", ("*",)), ("0:1, 2:3,0:1", ("0:1", "2:3", "0:1")), (" 7:0 ", ("7:0",))]
)
def test_throttled_replicas_are_pairs_or_all(text: str, elements: tuple[str, ...]) -> None:
    config = topic_log_config(LogConfig(), {"leader.replication.throttled.replicas": text})
    assert config.leader_replication_throttled_replicas == elements


@pytest.mark.parametrize("text", ["1", "*,0:1", "0:1,", "a:b", "0:-1", "0:1:2", "none", "٣:1"])
def test_what_are_no_replicas_is_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid, match="expected replicas as partition:broker"):
        topic_log_config(LogConfig(), {"follower.replication.throttled.replicas": text})


def test_keys_of_compaction_are_checked() -> None:
    wanted = {"min.cleanable.dirty.ratio": "0.25", "delete.retention.ms": "1"}
    expected = LogConfig(min_cleanable_dirty_ratio=0.25, delete_retention_ms=1)
    assert topic_log_config(LogConfig(), wanted) == expected
    with pytest.raises(SettingsInvalid, match="expected a number of 0 to 1"):
        topic_log_config(LogConfig(), {"min.cleanable.dirty.ratio": "1.5"})


def test_every_problem_is_told_at_once_with_the_nearest_key() -> None:
    with pytest.raises(SettingsInvalid) as caught:
        topic_log_config(
            LogConfig(),
            {"retention.m": "1", "cleanup.policy": "delete,compct", "segment.bytes": "3", "flush.messages": "0"},
            source="topic flights",
        )
    assert str(caught.value).splitlines() == [
        "4 problems in topic flights:",
        "  retention.m=1: there is no such topic key; did you mean retention.ms?",
        "  cleanup.policy=delete,compct: expected one or more of delete, compact; did you mean compact?",
        "  segment.bytes=3: expected 14 or more",
        "  flush.messages=0: expected 1 or more",
    ]


def test_stored_settings_are_used_as_far_as_they_can_be() -> None:
    stored = {"min.insync.replicas": "2", "key.of.tomorrow": "x", "retention.ms": "soon"}
    config, problems = applicable_log_config(LogConfig(retention_ms=7), stored)
    assert config == LogConfig(retention_ms=7, min_insync_replicas=2)
    assert [problem.split("=")[0] for problem in problems] == ["key.of.tomorrow", "retention.ms"]


@pytest.mark.parametrize("ratio", ["nan", "inf", "1e0", "", ".", "0_1", "-0.1"])
def test_a_ratio_is_a_plain_number(ratio: str) -> None:
    with pytest.raises(SettingsInvalid):
        topic_log_config(LogConfig(), {"min.cleanable.dirty.ratio": ratio})
