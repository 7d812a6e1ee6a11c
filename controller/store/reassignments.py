"""How reassignments stand in ZooKeeper: assignment and states of a topic in one piece, and what other tools ask for.

As they do reassignments, they ask for preferred leaders: in /admin/preferred_replica_election.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from regency.controller.store.access import LARGEST_OPERATION, StoreAccess, WriteCode, WriteResult, result_of
from regency.controller.store.topics import StoredTopic
from regency.model import znodes
from regency.model.errors import ZnodeMalformed
from regency.model.facts import LeaderIsrAndControllerEpoch, TopicAssignment
from regency.model.ids import BrokerId, TopicPartition, ZkVersion
from regency.model.znodes import paths
from regency.runtime.zookeeper.fenced import MAX_BATCH_BYTES, MAX_BATCH_OPS, FencedItem
from regency.runtime.zookeeper.ops import MAX_MULTI_BYTES, op_size
from regency.runtime.zookeeper.session import Delete, Op, SetData

logger = logging.getLogger(__name__)

MOST_STATES: Final = MAX_BATCH_OPS - 1
"""States that can be written together with their topic."""

AskedMoves = tuple[tuple[TopicPartition, tuple[BrokerId, ...]], ...]


class TopicChange(msgspec.Struct, frozen=True):
    """A topic znode as it shall be, with the states that change with it, at the versions they were decided from."""

    before: StoredTopic
    after: TopicAssignment
    states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch]


class TopicChanged(msgspec.Struct, frozen=True):
    """What became of a TopicChange: all of it was written, or nothing."""

    result: WriteResult
    stored: StoredTopic
    """The topic znode as it is now, where it was written."""
    versions: Mapping[TopicPartition, ZkVersion] = {}
    """Of the states, where they were written."""


def write_topics(access: StoreAccess, changes: Sequence[TopicChange]) -> list[TopicChanged]:
    """Write these topics, one change each. FAILED: it fits into no request. CONFLICT: read and decide again.

    RESTARTED as for `ClusterStore.update_states`.
    """
    written: list[TopicChanged | None] = []
    items: list[tuple[int, bytes, FencedItem]] = []
    for change in changes:
        data = znodes.encode_topic(change.after, previous=change.before.content)
        ops: list[Op] = [SetData(paths.topic(change.after.topic), data, change.before.assignment.zk_version)]
        ops += [
            SetData(paths.partition_state(partition), znodes.encode_state(state), state.leader_and_isr.zk_version)
            for partition, state in change.states.items()
        ]
        guards = dict.fromkeys(
            guard for state in change.states.values() for guard in access.guards(state.leader_and_isr.isr)
        )
        if fits((*guards, *ops)):
            items.append((len(written), data, FencedItem(tuple(ops), tuple(guards))))
            written.append(None)
        else:
            too_large = WriteResult(WriteCode.FAILED, why="the topic's znode has no room for it")
            written.append(TopicChanged(too_large, change.before))
    for (index, data, _), outcome in zip(items, access.write([item for _, _, item in items]), strict=True):
        change, result = changes[index], result_of(outcome)
        if result.code is not WriteCode.WRITTEN:
            written[index] = TopicChanged(result, change.before)
            continue
        version, *states = [ZkVersion(0 if each.stat is None else each.stat.version) for each in outcome.results]
        stored = StoredTopic(msgspec.structs.replace(change.after, zk_version=version), data)
        written[index] = TopicChanged(WriteResult(result.code, version), stored, dict(zip(change.states, states)))  # noqa: B905 - of one length
    return [each for each in written if each is not None]


def fits(ops: Sequence[Op]) -> bool:
    """Whether ZooKeeper takes these operations, and the check of the epoch, in one request."""
    largest, total = max(map(op_size, ops)), sum(map(op_size, ops))
    return len(ops) <= MAX_BATCH_OPS and total <= (LARGEST_OPERATION if largest > MAX_MULTI_BYTES else MAX_BATCH_BYTES)


class Asked(msgspec.Struct, frozen=True):
    """What /admin/reassign_partitions holds at a version. `malformed`: it cannot be read."""

    czxid: int
    version: ZkVersion
    moves: AskedMoves = ()
    malformed: ZnodeMalformed | None = None


def read_asked(access: StoreAccess) -> Asked | None:
    """What other tools ask for; None where there is no such znode."""
    (znode,) = access.read_many([paths.REASSIGN_PARTITIONS])
    if znode is None:
        return None
    version = ZkVersion(znode.stat.version)
    try:
        return Asked(znode.stat.czxid, version, znodes.decode_asked_moves(znode.path, znode.data))
    except ZnodeMalformed as error:
        return Asked(znode.stat.czxid, version, malformed=error)


def replace_asked(access: StoreAccess, asked: Asked, remaining: AskedMoves) -> bool:
    """Leave only `remaining` of what was read, or no znode where nothing remains. False: it has changed since."""
    path = paths.REASSIGN_PARTITIONS
    op = (
        SetData(path, znodes.encode_asked_moves(remaining), asked.version) if remaining else Delete(path, asked.version)
    )
    (outcome,) = access.write([FencedItem((op,))])
    return outcome.ok


class AskedElection(msgspec.Struct, frozen=True):
    """Partitions for which an election is asked, each once, and the version of the znode that says so."""

    partitions: tuple[TopicPartition, ...]
    zk_version: ZkVersion


def read_preferred_election(access: StoreAccess) -> AskedElection | None:
    """What is asked for; None where nothing is. One that cannot be read is reported, and asks for nothing."""
    (znode,) = access.read_many([paths.PREFERRED_ELECTION])
    if znode is None:
        return None
    named: tuple[TopicPartition, ...] = ()
    try:
        named = znodes.decode_preferred_election(znode.path, znode.data)
        if not named:
            logger.warning("%s names no partitions: nothing is elected, and it is removed", znode.path)
    except ZnodeMalformed as error:
        logger.error("%s What it asks for is not known: it is removed.", error)  # noqa: TRY400 (expected)
    return AskedElection(tuple(dict.fromkeys(named)), ZkVersion(znode.stat.version))


def remove_preferred_election(access: StoreAccess, asked: AskedElection) -> None:
    """Remove the request as it was read. One that was written again meanwhile stays."""
    access.write([FencedItem((Delete(paths.PREFERRED_ELECTION, asked.zk_version),))])
