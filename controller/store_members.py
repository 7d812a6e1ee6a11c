"""Which brokers the cluster knows: those that have ever registered, until somebody says that one is gone for good.

Each registration writes the broker's znode in /brokers/incarnations, in the same multi, so that is where it stands.
"""

from __future__ import annotations

import msgspec

from regency.controller.store_access import StoreAccess, WriteCode, WriteResult, result_of
from regency.model import znode_paths as paths
from regency.model.ids import BrokerEpoch, BrokerId, ZkVersion
from regency.runtime.fenced import FencedItem
from regency.runtime.zk_session import Delete


class Incarnation(msgspec.Struct, frozen=True):
    """A broker's newest registration that marks an incarnation: its broker epoch, and what a write can check."""

    epoch: BrokerEpoch
    version: ZkVersion


def read_incarnations(access: StoreAccess) -> dict[BrokerId, Incarnation]:
    """Of all that have registered and were not forgotten since; live brokers of other programs may be missing.

    From now on the controller's writes are guarded by them (see `StoreAccess.guards`).
    """
    numbers = (paths.parse_number(name) for name in access.children(paths.INCARNATIONS))
    brokers = [BrokerId(number) for number in numbers if number is not None]
    found = access.read_many([paths.incarnation(broker) for broker in brokers])
    incarnations = {
        broker: Incarnation(BrokerEpoch(znode.stat.mzxid), ZkVersion(znode.stat.version))
        for broker, znode in zip(brokers, found, strict=True)
        if znode is not None
    }
    access.know_incarnations({broker: each.version for broker, each in incarnations.items()})
    return incarnations


def remove_member(access: StoreAccess, broker: BrokerId) -> WriteResult:
    """Forget a broker that is not registered. CONFLICT: it is, or has just been. MISSING: nothing is known of it.

    Its incarnation is read before its registration, and deleted as it was read: whoever registers in between has
    written it again, and whoever registers afterwards makes another.
    """
    (held,) = access.read_many([paths.incarnation(broker)])
    (registered,) = access.read_many([paths.broker(broker)])
    if registered is not None:
        return WriteResult(WriteCode.CONFLICT, why="it is registered")
    if held is None:
        return WriteResult(WriteCode.MISSING)
    delete = Delete(held.path, ZkVersion(held.stat.version))
    return result_of(access.write([FencedItem((delete,))])[0])
