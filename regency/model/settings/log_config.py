"""Configuration of one partition's log: the topic-level keys of Kafka, with a broker's values as defaults."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from regency.model.settings.keys import TOPIC_KEYS
from regency.model.settings.values import Problems, SettingsInvalid, nearest

UNLIMITED = -1
NEVER = 2**63 - 1
DELETE = "delete"
"""A cleanup.policy under which old records go, and clients may delete records."""
COMPACT = "compact"
"""The cleanup.policy under which the last record of every key is kept."""


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Topic-level settings under Kafka's names (dots as underscores). Units: `_ms` milliseconds, `_bytes` bytes."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 168 * 3_600_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    retention_ms: int = 168 * 3_600_000
    """-1: for ever."""
    retention_bytes: int = UNLIMITED
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    cleanup_policy: tuple[str, ...] = ("delete",)
    delete_retention_ms: int = 24 * 3_600_000
    """How long a deletion mark (a record without value) is kept from the cleaning on that finds it."""
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    message_timestamp_type: str = "CreateTime"
    compression_type: str = "producer"
    preallocate: bool = False
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    """Each `partition:broker`, or `*` alone."""
    follower_replication_throttled_replicas: tuple[str, ...] = ()


def topic_log_config(base: LogConfig, overrides: Mapping[str, str], *, source: str = "topic settings") -> LogConfig:
    """`base` with the topic-level keys of `overrides` (such as `retention.ms`) in place of its own values.

    For settings that a client asks for: keys of Kafka that concern what is not done here (down-conversion) are checked
    and have no effect, and SettingsInvalid with all problems is raised where there is one. `source` names what the keys
    were read from.
    """
    config, problems = applicable_log_config(base, overrides)
    if problems:
        raise SettingsInvalid(source, problems)
    return config


def applicable_log_config(base: LogConfig, overrides: Mapping[str, str]) -> tuple[LogConfig, tuple[str, ...]]:
    """As topic_log_config, for settings that are already stored: what can be used is, the rest is reported.

    A key that a newer tool left behind must not cost a topic its min.insync.replicas.
    """
    problems = Problems(overrides, {})
    changes: dict[str, object] = {}
    for name in overrides:
        if name not in TOPIC_KEYS:
            problems.add(name, f"there is no such topic key{nearest(name, list(TOPIC_KEYS))}")
            continue
        kind, has_effect = TOPIC_KEYS[name]
        value = problems.read(name, kind)
        if has_effect and value is not None:
            changes[name.replace(".", "_")] = value
    return msgspec.structs.replace(base, **changes), tuple(problems.found)
