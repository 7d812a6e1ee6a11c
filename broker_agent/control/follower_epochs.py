"""Peers to the leader: as metadata says, or as ZooKeeper does where a follower speaks as an incarnation unheard of.

Metadata may come later than the first fetch of a broker that has restarted. And anybody can fetch in a follower's name:
what no registration bears out is read to, and never counts (KIP-903). Data loop only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from regency.broker_agent.control.metadata_cache import MetadataCache
from regency.model.clock import Clock
from regency.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId

ASK_EVERY_MS = 1_000
"""ZooKeeper is not asked about one broker more often, however many incarnations it is said to have."""

Answered = Callable[[BrokerEpoch | BaseException], None]


class _Asked(NamedTuple):
    epoch: BrokerEpoch
    told: BrokerEpoch | None
    """What metadata said then."""
    at_ms: int


class FollowerEpochs:
    """The `Peers` of replication. `ask` has ZooKeeper say which incarnation of a broker is registered (-1: none)."""

    def __init__(self, metadata: MetadataCache, ask: Callable[[BrokerId, Answered], None], clock: Clock) -> None:
        self.is_shutting_down = metadata.is_shutting_down
        self.has_partition = metadata.has_partition
        self._told = metadata.broker_epoch
        self._ask = ask
        self._clock = clock
        self._asked: dict[BrokerId, _Asked] = {}
        self._asking: set[BrokerId] = set()
        self._confirmed: dict[BrokerId, tuple[BrokerEpoch, BrokerEpoch | None]] = {}
        """What ZooKeeper said, and what metadata had said: it is newer until metadata says something else."""

    def broker_epoch(self, broker: BrokerId) -> BrokerEpoch | None:
        """Registered incarnation of a live broker, by whichever of the two is newer."""
        told = self._told(broker)
        confirmed = self._confirmed.get(broker)
        if confirmed is None:
            return told
        if confirmed[1] == told:
            return confirmed[0]
        del self._confirmed[broker]  # else it would count again once metadata says what it said then
        return told

    def confirm(self, broker: BrokerId, epoch: BrokerEpoch) -> None:
        """Find out. Asks once about an incarnation, unless there was no answer or metadata has changed."""
        told, now_ms = self._told(broker), self._clock.monotonic_ms()
        last = self._asked.get(broker)
        if broker in self._asking or (
            last is not None and (now_ms - last.at_ms < ASK_EVERY_MS or (last.epoch, last.told) == (epoch, told))
        ):
            return
        self._asking.add(broker)
        self._asked[broker] = asked = _Asked(epoch, told, now_ms)
        self._ask(broker, lambda outcome: self._answered(broker, asked, outcome))

    def _answered(self, broker: BrokerId, asked: _Asked, outcome: BrokerEpoch | BaseException) -> None:
        self._asking.discard(broker)
        if isinstance(outcome, BaseException):
            self._asked[broker] = asked._replace(epoch=NO_BROKER_EPOCH)
        elif outcome != NO_BROKER_EPOCH:
            self._confirmed[broker] = outcome, asked.told
