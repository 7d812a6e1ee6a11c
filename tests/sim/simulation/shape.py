"""What a run simulates: how many brokers, topics and faults, for how long, under which settings."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from regency.model.ids import BrokerId
from regency.model.settings import BrokerSettings

SECOND_US: Final = 1_000_000


class TopicShape(NamedTuple):
    """A topic that is created at the start."""

    name: str
    partitions: int
    replication_factor: int
    min_insync: int


class Shape(NamedTuple):
    """A run. Times in virtual seconds."""

    profile: str
    brokers: int
    topics: tuple[TopicShape, ...]
    faults: int
    first_fault_s: float
    heal_s: float
    """When the last fault has healed."""
    patience_s: float
    """How long after that the cluster may take to converge."""
    lossy: int
    """Crashes that lose what was not synced; with more than min.insync.replicas − 1 of them records may be lost."""
    producers: tuple[str, ...]
    """Their modes."""
    consumers: int
    segment_bytes: int


TOPICS: Final = (TopicShape("blue", 2, 3, 2), TopicShape("red", 1, 3, 2))
PROFILES: Final = ("quick", "deep")


def shape_of(profile: str, seed: int) -> Shape:
    """The run of a seed under a profile. `quick` is always of one shape; `deep` varies everything by the seed."""
    if profile == "quick":
        return Shape(profile, 3, TOPICS, 10, 5.0, 38.0, 30.0, 0, ("idempotent",), 1, 1 << 20)
    chance = random.Random(f"shape {seed}")  # a string seeds by its bytes, whatever PYTHONHASHSEED is
    brokers = chance.choice((3, 3, 3, 4))
    topics = (
        TopicShape("blue", chance.choice((1, 2, 3)), 3, chance.choice((2, 2, 2, 1))),
        TopicShape("red", chance.choice((1, 2)), chance.choice((2, 3)), chance.choice((1, 2))),
    )
    return Shape(
        profile,
        brokers,
        topics,
        chance.randint(6, 20),
        5.0,
        38.0,
        30.0,
        chance.choice((0, 0, 1)),
        chance.choice(
            (("idempotent",), ("hasty",), ("idempotent", "hasty"), ("idempotent", "plain"), ("hasty", "leader"))
        ),
        chance.choice((1, 2)),
        chance.choice((1 << 20, 2_000, 600)),
    )


def settings_of(shape: Shape, broker: BrokerId) -> BrokerSettings:
    """Settings of a broker: Kafka's, with times that fit into a minute."""
    return BrokerSettings(
        broker_id=broker,
        log_dirs=(f"/logs-{broker}",),
        zookeeper_connect="zookeeper",
        zookeeper_session_timeout_ms=3_000,
        replica_lag_time_max_ms=4_000,
        replica_fetch_wait_max_ms=1_000,
        replica_fetch_backoff_ms=300,
        replica_socket_timeout_ms=4_000,
        replica_high_watermark_checkpoint_interval_ms=2_000,
        controller_socket_timeout_ms=4_000,
        controlled_shutdown_retry_backoff_ms=500,
        log_segment_bytes=shape.segment_bytes,
        log_flush_offset_checkpoint_interval_ms=5_000,
        auto_create_topics_enable=False,
        default_replication_factor=3,
    )
