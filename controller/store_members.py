"""Which brokers the cluster knows: those that have ever registered, until somebody says that one is gone for good.

Each registration writes the broker's znode in /brokers/incarnations, in the same multi, so that is where it stands.
"""

from __future__ import annotations

from regency.controller.store_access import StoreAccess, WriteCode, WriteResult, result_of
from regency.model import znode_paths as paths
from regency.model.ids import BrokerId, ZkVersion
from regency.runtime.fenced import FencedItem
from regency.runtime.zk_session import Delete


def read_members(access: StoreAccess) -> frozenset[BrokerId]:
    """Brokers that have registered and were not forgotten since; live ones of other programs may be missing."""
    numbers = (paths.parse_number(name) for name in access.children(paths.INCARNATIONS))
    return frozenset(BrokerId(number) for number in numbers if number is not None)


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
