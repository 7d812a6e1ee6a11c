"""Which brokers the cluster knows: those that have ever registered, until an operator says that one is gone for good.

Each registration writes the broker's znode in /brokers/incarnations, in the same multi, so that is where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from regency.controller.store.access import StoreAccess, WriteCode, WriteResult, result_of
from regency.model import znodes
from regency.model.ids import BrokerEpoch, BrokerId, ZkVersion
from regency.model.znodes import paths
from regency.runtime.zookeeper.fenced import FencedItem
from regency.runtime.zookeeper.session import Delete


class Incarnation(msgspec.Struct, frozen=True):
    """A broker's newest registration that marks an incarnation: its broker epoch, and what a write can check.

    `lost_epoch`: the last registration before which it may have lost something of its logs.
    """

    epoch: BrokerEpoch
    version: ZkVersion
    lost_epoch: BrokerEpoch


def read_incarnations(access: StoreAccess) -> dict[BrokerId, Incarnation]:
    """Of all that have registered and were not forgotten since; live brokers of other programs may be missing.

    From now on the controller's writes are guarded by them (see `StoreAccess.guards`).
    """
    numbers = (paths.parse_number(name) for name in access.children(paths.INCARNATIONS))
    incarnations = _read(access, [BrokerId(number) for number in numbers if number is not None])
    access.know_incarnations({broker: each.version for broker, each in incarnations.items()})
    return incarnations


def read_losses(
    access: StoreAccess, incarnations: Mapping[BrokerId, Incarnation], epochs: Mapping[BrokerId, BrokerEpoch]
) -> dict[BrokerId, BrokerEpoch]:
    """Before which registration each broker may have lost something last; of `epochs`, registered now, if unsaid.

    Where a registration is newer than the incarnation that was read, it came in between: what it says is read now.
    """
    newer = [each for each, epoch in epochs.items() if each not in incarnations or incarnations[each].epoch < epoch]
    said = {**incarnations, **_read(access, newer)}
    unsaid = {each: epochs[each] for each in newer if each not in said or said[each].epoch < epochs[each]}
    return {**{broker: each.lost_epoch for broker, each in said.items()}, **unsaid}


def _read(access: StoreAccess, brokers: Sequence[BrokerId]) -> dict[BrokerId, Incarnation]:
    incarnations = {}
    for broker, znode in zip(brokers, access.read_many([paths.incarnation(each) for each in brokers]), strict=True):
        if znode is not None:
            epoch = BrokerEpoch(znode.stat.mzxid)
            lost_epoch = znodes.decode_incarnation(znode.data, epoch=epoch)
            incarnations[broker] = Incarnation(epoch, ZkVersion(znode.stat.version), lost_epoch)
    return incarnations


def remove_member(access: StoreAccess, broker: BrokerId) -> WriteResult:
    """Forget a broker that is not registered. CONFLICT: it is, or has just been. MISSING: nothing is known of it.

    Its incarnation is read before its registration, and deleted as it was read: a broker that registers in between has
    written it again, and one that registers afterwards makes another.
    """
    (held,) = access.read_many([paths.incarnation(broker)])
    (registered,) = access.read_many([paths.broker(broker)])
    if registered is not None:
        return WriteResult(WriteCode.CONFLICT, why="it is registered")
    if held is None:
        return WriteResult(WriteCode.MISSING)
    delete = Delete(held.path, ZkVersion(held.stat.version))
    return result_of(access.write([FencedItem((delete,))])[0])
