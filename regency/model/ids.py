"""Names for the numbers of this system, so that an epoch is never passed where an offset belongs.

Imports nothing of ours. Units and ranges stand with each name; sentinels are Kafka's.
"""

from __future__ import annotations

from typing import Final, NamedTuple, NewType
from uuid import UUID

BrokerId = NewType("BrokerId", int)
"""Number of a broker, 0 or more; one agent and its znode /brokers/ids/N."""

ControllerEpoch = NewType("ControllerEpoch", int)
"""Term of a controller, from /controller_epoch; the first controller rules in epoch 1."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Term of a partition's leader, from 0; grows with every decision of the controller about the partition."""

BrokerEpoch = NewType("BrokerEpoch", int)
"""One incarnation of a broker: the czxid of its znode (KIP-380)."""

ZkVersion = NewType("ZkVersion", int)
"""Data version of a znode, from 0: what a compare-and-set compares."""

Offset = NewType("Offset", int)
"""Position of a record in a partition's log, from 0."""

ProducerId = NewType("ProducerId", int)
"""Number of an idempotent producer, 0 or more (KIP-98)."""

ProducerEpoch = NewType("ProducerEpoch", int)
"""Generation of a producer id, 0 to 32767."""

TopicId = NewType("TopicId", UUID)
"""Identity of a topic across deletion and re-creation under one name (KIP-516)."""


class TopicPartition(NamedTuple):
    """One partition of a topic. `partition` counts from 0."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionReplica(NamedTuple):
    """One copy of a partition: the partition and the broker that holds it."""

    topic: str
    partition: int
    broker: BrokerId

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition this is a copy of."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker}"


NO_LEADER: Final = BrokerId(-1)
"""In place of the leader of a partition that has none; stored in the state znode."""

LEADER_DURING_DELETE: Final = BrokerId(-2)
"""Leader of a partition whose topic is being deleted; only in UpdateMetadata, never stored."""

NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
"""No epoch known: before the first LeaderAndIsr, and in requests that name none."""

EPOCH_DURING_DELETE: Final = LeaderEpoch(-2)
"""Leader epoch of a StopReplica for a topic being deleted: no check (KIP-570)."""

LARGEST_LEAP: Final = 1_000_000
"""So far beyond what is known a controller epoch or a leader epoch is believed: one wrong word must not use up all
epochs there are."""

NO_BROKER_EPOCH: Final = BrokerEpoch(-1)
"""Broker epoch not known or not given."""

NO_PRODUCER_ID: Final = ProducerId(-1)
"""Producer id of batches that are not idempotent."""

UNKNOWN_OFFSET: Final = Offset(-1)
"""Offset not known, for example the LEO of a follower that has not fetched in this epoch."""

ZERO_TOPIC_ID: Final = TopicId(UUID(int=0))
"""The all-zero id that Kafka's protocol uses for "no topic id"."""
