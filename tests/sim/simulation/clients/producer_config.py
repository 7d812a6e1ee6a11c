"""What a simulated producer can be told to be."""

from __future__ import annotations

import msgspec

from regency.judge.operations import ALL


class ProducerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a producer behaves; times in milliseconds of its own clock."""

    acks: int = ALL
    idempotent: bool = True
    like_librdkafka: bool = False
    """Bump the epoch of the whole producer on OUT_OF_ORDER_SEQUENCE_NUMBER and send all that has no outcome again."""
    records_per_s: float = 4.0
    """Over all partitions; in bursts, with pauses."""
    request_timeout_ms: int = 4_000
    """The client gives an attempt up; the broker does at three quarters of it."""
    delivery_timeout_ms: int = 20_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
