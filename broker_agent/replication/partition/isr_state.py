"""The in-sync replicas as a leader knows them: committed in ZooKeeper, or with one change on its way there.

Pure. While a change is on its way it may have happened or not, so what counts records uses the larger set and what
promises safety to producers the committed one (KIP-497).
"""

from __future__ import annotations

import msgspec

from regency.model.ids import BrokerId, ZkVersion


class Committed(msgspec.Struct, frozen=True, gc=False):
    """The ISR of the state znode at `zk_version`; nothing under way."""

    committed: tuple[BrokerId, ...]
    zk_version: ZkVersion

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """Everybody who may be in the ISR that elections use."""
        return self.committed


class PendingExpand(msgspec.Struct, frozen=True, gc=False):
    """`joining` is being added to the ISR at `zk_version`."""

    committed: tuple[BrokerId, ...]
    joining: tuple[BrokerId, ...]
    zk_version: ZkVersion

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """With those that join: the write may have happened already."""
        return self.committed + self.joining

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The ISR being written."""
        return self.committed + self.joining


class PendingShrink(msgspec.Struct, frozen=True, gc=False):
    """`leaving` is being removed from the ISR at `zk_version`."""

    committed: tuple[BrokerId, ...]
    leaving: tuple[BrokerId, ...]
    zk_version: ZkVersion

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """With those that leave: the write may not happen."""
        return self.committed

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The ISR being written."""
        return tuple(member for member in self.committed if member not in self.leaving)


Pending = PendingExpand | PendingShrink
IsrState = Committed | PendingExpand | PendingShrink

NOT_LEADING = Committed((), ZkVersion(-1))
"""Of a partition led elsewhere: a follower does not know the ISR."""
