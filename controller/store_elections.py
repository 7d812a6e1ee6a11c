"""/admin/preferred_replica_election: what other tools ask for, read and removed."""

from __future__ import annotations

import logging

import msgspec

from regency.controller.store_access import StoreAccess
from regency.model import znode_paths as paths
from regency.model import znodes
from regency.model.errors import ZnodeMalformed
from regency.model.ids import TopicPartition, ZkVersion
from regency.runtime.fenced import FencedItem
from regency.runtime.zk_session import Delete

logger = logging.getLogger(__name__)


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
    """Remove the request as it was read. Whoever wrote it again meanwhile keeps it."""
    access.write([FencedItem((Delete(paths.PREFERRED_ELECTION, asked.zk_version),))])
