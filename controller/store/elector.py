"""The race for /controller. Wins or loses; never rules, never decides about partitions.

The ephemeral owner says who owns /controller, never the broker id in it: the znode of an earlier session of
this broker is a foreign one (KAFKA-13407), and the epoch changes only by winning (KAFKA-1096).
"""

from __future__ import annotations

import logging
from uuid import uuid4

import msgspec

from regency.controller.store.access import Fence, Retry
from regency.model import znodes
from regency.model.clock import Clock
from regency.model.errors import ZnodeMalformed
from regency.model.ids import LARGEST_LEAP, NO_LEADER, BrokerId, ControllerEpoch
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import (
    Check,
    Create,
    Delete,
    Op,
    SetData,
    ZkCode,
    ZkConnectionLost,
    ZkError,
    ZkSession,
    ZkSessionLost,
)

logger = logging.getLogger(__name__)


LAST_EPOCH = 2**31 - 1
"""Highest controller epoch there can be: it has 31 bits in Kafka's protocol."""


_FASTER = (ZkCode.OK, ZkCode.NODE_EXISTS, ZkCode.BAD_VERSION, ZkCode.NO_NODE)
"""Outcomes of a race that was run: won, or another was faster, whose write a watch tells of."""


class Incumbent(msgspec.Struct, frozen=True):
    """Who stands in /controller. `broker` is -1 where the content cannot be read."""

    broker: BrokerId
    session_id: int
    version: int
    unreadable: str = ""
    """Why its content cannot be read, in a sentence."""


class Lost(msgspec.Struct, frozen=True):
    """Another candidate rules, or was faster."""

    incumbent: Incumbent | None


class Predecessor(msgspec.Struct, frozen=True):
    """The broker whose controller ruled in the epoch before, and that epoch."""

    broker: BrokerId
    epoch: ControllerEpoch


class Elector:
    """Takes part in elections for one broker, over one ZkSession."""

    def __init__(self, session: ZkSession, retry: Retry, broker: BrokerId, clock: Clock) -> None:
        self._session = session
        self._retry = retry
        self._broker = broker
        self._clock = clock
        self._reported = ""
        self._seen = ControllerEpoch(0)
        self._ruler: tuple[int | None, BrokerId] = None, NO_LEADER
        self.predecessor: Predecessor | None = None
        """Who ruled right before this session won last; None where this candidate has not seen it."""

    def saw(self, epoch: ControllerEpoch) -> None:
        """There has been this epoch, whatever /controller_epoch says later: win beyond it only."""
        self._seen = max(self._seen, epoch)

    def elect(self) -> Fence | Lost:
        """Race for /controller unless it exists. Raises ZkError, ZnodeMalformed for /controller_epoch."""
        generation = self._session.generation
        epoch_version, incumbent = self._look()
        if incumbent is not None:
            if incumbent.session_id != self._session.session_id:
                self._ruler = epoch_version, incumbent.broker
                self._remember_epoch()
                return Lost(incumbent)
            self._remove_own(epoch_version, incumbent, generation)
        self._create_parents(generation)
        epoch, version = self._read_epoch()
        version_seen, ruler = self._ruler
        known = version_seen == version and ruler != NO_LEADER  # no other has won since it was seen
        self.predecessor = Predecessor(ruler, ControllerEpoch(epoch)) if known else None
        return self._race(ControllerEpoch(epoch + 1), version, generation)

    def incumbent(self) -> Incumbent | None:
        """Who stands in /controller now."""
        return self._look()[1]

    def _look(self) -> tuple[int | None, Incumbent | None]:
        """The version of /controller_epoch, and who stood in /controller when it had that, or later."""
        wanted = [paths.CONTROLLER_EPOCH, paths.CONTROLLER]
        epoch, znode = self._retry.until_done(lambda: self._session.read_many(wanted))
        version = None if epoch is None else epoch.stat.version
        if znode is None:
            return version, None
        broker, unreadable = NO_LEADER, ""
        try:
            broker = znodes.decode_controller(znode.path, znode.data)
        except ZnodeMalformed as error:
            unreadable = str(error)
            if self._reported != unreadable:
                self._reported = unreadable
                logger.error("%s Its writer rules until it is deleted.", unreadable)  # noqa: TRY400
        return version, Incumbent(broker, znode.stat.ephemeral_owner, znode.stat.version, unreadable)

    def still_rules(self, fence: Fence) -> bool:
        """Whether /controller is of this session and none other has won since. Reads what is committed now."""
        incumbent = self.incumbent()
        if incumbent is None or incumbent.session_id != self._session.session_id:
            return False
        znode = self._retry.until_done(lambda: self._session.read(paths.CONTROLLER_EPOCH))
        return znode is not None and znode.stat.version == fence.zk_version

    def release(self, fence: Fence) -> None:
        """Give /controller up if it is still ours, so that another may rule at once. Raises ZkError."""
        incumbent = self.incumbent()
        if incumbent is not None and incumbent.session_id == self._session.session_id:
            check = Check(paths.CONTROLLER_EPOCH, fence.zk_version)
            self._session.multi([check, Delete(paths.CONTROLLER, incumbent.version)], generation=fence.generation)

    def _race(self, epoch: ControllerEpoch, version: int, generation: int) -> Fence | Lost:
        data = znodes.encode_controller(self._broker, timestamp_ms=self._clock.wall_ms())
        race: list[Op] = [
            Create(paths.CONTROLLER, data, ephemeral=True),
            SetData(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), version),
        ]
        fence = Fence(epoch, version + 1, generation)
        try:
            outcome = self._session.multi(race, generation=generation)
        except ZkConnectionLost:
            self._resync(generation)
            won = self.still_rules(fence)
        else:
            won = outcome.ok
            code = ZkCode.OK if won else outcome.results[outcome.failed_index].code
            if code not in _FASTER:
                raise ZkError(f"ZooKeeper refused the race for {paths.CONTROLLER}: {code.value}.")
        if not won:
            return Lost(None)
        self.saw(epoch)
        return fence

    def _resync(self, generation: int) -> None:
        self._retry.until_done(lambda: self._session.sync(paths.CONTROLLER))
        if self._session.generation != generation:
            raise ZkSessionLost("The session with ZooKeeper ended during an election.")

    def _remember_epoch(self) -> None:
        """Keep the ruling epoch, so that none is used twice should /controller_epoch be lost or set back."""
        znode = self._retry.until_done(lambda: self._session.read(paths.CONTROLLER_EPOCH))
        try:
            epoch = ControllerEpoch(0) if znode is None else znodes.decode_controller_epoch(znode.path, znode.data)
        except ZnodeMalformed:
            return  # told when it is in the way
        if not self._seen or epoch - self._seen <= LARGEST_LEAP:
            self.saw(epoch)

    def _read_epoch(self) -> tuple[ControllerEpoch, int]:
        znode = self._retry.until_done(lambda: self._session.read(paths.CONTROLLER_EPOCH))
        assert znode is not None, "created before"
        epoch = max(znodes.decode_controller_epoch(znode.path, znode.data), self._seen)
        if epoch >= LAST_EPOCH:
            raise ZnodeMalformed(znode.path, f"no epoch is left after {epoch}")
        return epoch, znode.stat.version

    def _remove_own(self, epoch_version: int | None, incumbent: Incumbent, generation: int) -> None:
        """Remove /controller of this session, which does not rule, unless another has won since it was read.

        His would have the same version: only that of the epoch tells them apart.
        """
        if epoch_version is None:  # deleted by hand
            self._create_parents(generation)
            epoch_version, found = self._look()
            if epoch_version is None or found is None or found.session_id != self._session.session_id:
                return
            incumbent = found
        logger.info("removing /controller of this very session, which does not rule, to race again")
        removal: list[Op] = [Check(paths.CONTROLLER_EPOCH, epoch_version), Delete(paths.CONTROLLER, incumbent.version)]
        self._retry.until_done(lambda: self._session.multi(removal, generation=generation))

    def _create_parents(self, generation: int) -> None:
        """Create what is missing below which a controller works, so that it may start before any broker."""
        wanted = dict.fromkeys(paths.PERSISTENT_PARENTS, b"")
        wanted[paths.CONTROLLER_EPOCH] = znodes.encode_controller_epoch(ControllerEpoch(0))
        wanted[paths.CLUSTER_ID] = znodes.encode_cluster_id(znodes.new_cluster_id(uuid4()))
        found = self._retry.until_done(lambda: self._session.read_many(list(wanted)))
        for (path, data), znode in zip(wanted.items(), found, strict=True):
            if znode is None:
                self._create(Create(path, data), generation)

    def _create(self, create: Create, generation: int) -> None:
        outcome = self._retry.until_done(lambda: self._session.multi([create], generation=generation))
        code = outcome.results[0].code
        if code not in (ZkCode.OK, ZkCode.NODE_EXISTS):
            raise ZkError(f"ZooKeeper refused to create {create.path}: {code.value}.")
