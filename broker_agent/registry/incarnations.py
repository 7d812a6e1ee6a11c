"""Incarnations of brokers in a form that a multi can check: who restarts unnoticed makes an ISR write fail.

A registration is ephemeral, and whichever one stands has version 0: a multi cannot tell one from the next. So every
registration also writes the broker's persistent znode in /brokers/incarnations, in the same multi. Its mzxid is then
the broker epoch, its version counts on, and `Check` with that version holds exactly until a process registers under
that broker id again. For an ISR change each remote member is checked:

- who joins must be the incarnation whose log was judged (KIP-903);
- who stays must not have registered after the last write of the state, else the new write, being younger than the
  registration, would hide the restart from a controller that compares the two at its failover.

A broker whose present registration wrote no such znode (another program's, or an older one's) cannot be checked: it
stays, and joins if it is the incarnation that metadata knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from regency.broker_agent.ports import IsrChange
from regency.model import znodes
from regency.model.ids import BrokerEpoch, BrokerId
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.session import Check, Create, Op, SetData, ZkSession, Znode

PeerEpoch = Callable[[BrokerId], BrokerEpoch | None]
"""The incarnation of a live broker as metadata knows it; None where it is not known to live. Any thread."""


class Refused(msgspec.Struct, frozen=True):
    """A change that must not be written now. `conflict`: the state is not the one that it was decided on."""

    why: str
    conflict: bool = False


Guard = tuple[Check, ...] | Refused
"""What makes a change fail once a member of it has restarted, or why it is not even tried."""


def mark(broker: BrokerId, held: Znode | None, *, whole: bool, process: str = "") -> Op:
    """The part of a registration's multi that says "another incarnation"; `held` is the incarnation's znode as read.

    Should another process register meanwhile, it fails: look again. `whole`: this broker has lost nothing since. What
    was lost earlier is said on: no controller may have seen that registration. Before the first there was nothing to
    lose. `process` is the same in all registrations of a process: that tells a lost session from a restart.
    """
    path = znode_paths.incarnation(broker)
    if held is None:
        return Create(path, znodes.encode_incarnation(whole=True, lost_epoch=znodes.NO_LOSS, process=process))
    epoch = BrokerEpoch(held.stat.mzxid)
    lost = znodes.decode_incarnation(held.data, epoch=epoch)
    before, since = znodes.decode_process(held.data, epoch=epoch)
    said = znodes.encode_incarnation(
        whole=whole, lost_epoch=lost, process=process, since=since if before == process else None
    )
    return SetData(path, said, held.stat.version)


def guards(session: ZkSession, changes: Sequence[IsrChange], peer_epoch: PeerEpoch) -> list[Guard]:
    """One guard per change, from one pipelined read for all; another one, after a sync, if ours is a server behind.

    Blocks, not longer than a read and a sync may. Raises ZkError.
    """
    held = _read(session, changes)
    if any(_is_behind(held, change) for change in changes):
        session.sync(znode_paths.BROKER_IDS)
        held = _read(session, changes)
    return [_guard(held, change, peer_epoch) for change in changes]


Held = Mapping[str, Znode | None]


def _read(session: ZkSession, changes: Sequence[IsrChange]) -> Held:
    """Registrations first: one that is older than its incarnation's znode is then one that was replaced meanwhile."""
    members = sorted({member for change in changes for member in change.isr if member != change.leader})
    paths = [
        *(znode_paths.broker(member) for member in members),
        *(znode_paths.incarnation(member) for member in members),
        *(znode_paths.partition_state(change.topic_partition) for change in changes),
    ]
    return dict(zip(paths, session.read_many(paths), strict=True))


def _is_behind(held: Held, change: IsrChange) -> bool:
    state = held[znode_paths.partition_state(change.topic_partition)]
    return state is None or state.stat.version < change.zk_version


def _guard(held: Held, change: IsrChange, peer_epoch: PeerEpoch) -> Guard:
    state = held[znode_paths.partition_state(change.topic_partition)]
    if state is None or state.stat.version != change.zk_version:
        return Refused("the state is another one by now", conflict=True)
    judged = dict(change.joining)
    checks = []
    restarted = []
    for member in change.isr:
        if member == change.leader:
            continue
        registration, incarnation = held[znode_paths.broker(member)], held[znode_paths.incarnation(member)]
        if incarnation is None or (registration and incarnation.stat.mzxid < registration.stat.czxid):
            fits = member not in judged or peer_epoch(member) == judged[member]
        else:
            zxid = incarnation.stat.mzxid
            is_judged = registration is not None and zxid == judged.get(member)
            fits = is_judged if member in judged else zxid <= state.stat.mzxid
            checks.append(Check(incarnation.path, incarnation.stat.version))
        if not fits:
            restarted.append(member)
    return Refused(f"{restarted} restarted or left meanwhile") if restarted else tuple(checks)
