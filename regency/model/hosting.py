"""What a broker is to the partitions it hosts, and a digest of it that controllers and agents compute alike.

The digest of a broker is the sum, modulo 2**64, of one number per replica it leads or follows: a change of one
replica takes its old number out and its new one in. What changes all the time (offsets) is not in it. Two digests that
differ although nothing else does, as they would between interpreters that hash tuples in different ways, only cost a
comparison of every replica.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from regency.model.ids import LeaderEpoch, TopicId, ZkVersion

_MASK: Final = (1 << 64) - 1


class HostedRole(IntEnum):
    """What a broker is to a partition, as it reports it. The numbers stand in messages."""

    NONE = 0
    """Not hosted, or stopped."""
    LEADER = 1
    FOLLOWER = 2
    """Following, or waiting until there is a leader."""
    UNFED = 3
    """Follows a leader, and no fetcher works on it."""
    OFFLINE = 4
    """Its log directory failed."""


SERVED: Final = frozenset({HostedRole.LEADER, HostedRole.FOLLOWER, HostedRole.UNFED})
"""Roles that are in the digest: a replica in another one is as if it were not there."""

_FED: Final = {HostedRole.LEADER: 1, HostedRole.FOLLOWER: 1, HostedRole.UNFED: 0}


def topic_number(topic_id: TopicId) -> int:
    """What `replica_number` takes of a topic."""
    return hash(topic_id.int)  # of an integer: the same in every process


def replica_number(
    topic: int, partition: int, leader: int, leader_epoch: LeaderEpoch, zk_version: ZkVersion, role: HostedRole
) -> int:
    """What one replica adds to its broker's digest; 0 for one that is not served.

    The version counts with leaders only: followers are not told of changes of the ISR.
    """
    fed = _FED.get(role)
    if fed is None:
        return 0
    version = zk_version if role is HostedRole.LEADER else -7
    return hash((topic, partition, leader, leader_epoch, version, fed)) & _MASK


def replaced(digest: int, old: int, new: int) -> int:
    """A digest once the number of a replica, or of many, is another one; 0 for none."""
    return (digest - old + new) & _MASK
