"""What only ZooKeeper can confirm: any peer can say that it rules, or that it is a broker's newest incarnation.

Every reading here comes after a sync: what was written before somebody spoke of it is seen. Both functions block, not
longer than a sync and a read may, and raise ZkError; for threads, not for the data loop.
"""

from __future__ import annotations

from regency.broker_agent.control_gate import Office
from regency.model import znode_paths as paths
from regency.model import znodes
from regency.model.ids import NO_BROKER_EPOCH, NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch
from regency.runtime.zk_session import ZkSession


def read_office(session: ZkSession, broker: BrokerId) -> Office:
    """Who rules, and as what the process of this session is registered as `broker`. Raises ZnodeMalformed, too."""
    session.sync(paths.CONTROLLER_EPOCH)
    epoch, ruling, own = session.read_many((paths.CONTROLLER_EPOCH, paths.CONTROLLER, paths.broker(broker)))
    is_ours = own is not None and own.stat.ephemeral_owner == session.session_id
    return Office(
        ControllerEpoch(0) if epoch is None else znodes.decode_controller_epoch(epoch.path, epoch.data),
        NO_LEADER if ruling is None else znodes.decode_controller(ruling.path, ruling.data),
        BrokerEpoch(own.stat.czxid) if own is not None and is_ours else NO_BROKER_EPOCH,
    )


def registered_epoch(session: ZkSession, broker: BrokerId) -> BrokerEpoch:
    """The incarnation of a broker that is registered; -1 where none is."""
    path = paths.broker(broker)
    session.sync(path)
    held = session.read(path)
    return NO_BROKER_EPOCH if held is None else BrokerEpoch(held.stat.czxid)
