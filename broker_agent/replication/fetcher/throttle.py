"""Throttles of copying: which replicas are held back, and until when (KIP-73, Kafka's ReplicationQuotaManager).

Pure but for the settings it is handed: told the time, and asked. Whether a replica is in sync, and so exempt, is known
to its user: a leader by the ISR, a follower by the high watermark it received. What replicas that are in sync
move is counted all the same, so a rate below theirs starves the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from regency.model.ids import BrokerId, TopicPartition
from regency.model.settings import BrokerSettings
from regency.model.settings.dynamic import ThrottleRates
from regency.model.settings.log_config import NEVER, LogConfig

Replicas = tuple[str, ...]
"""Elements of a list of throttled replicas: `partition:broker`, or `*` alone."""


class ReplicationThrottle:
    """One side of a broker's replication: what it sends as a leader, or fetches as a follower.

    `limit` and `replicas` are asked every time: what is changed has effect at once.
    """

    def __init__(
        self, broker: BrokerId, rate: ByteRate, limit: Callable[[], int], replicas: Callable[[str], Replicas]
    ) -> None:
        self._broker = broker
        self._rate = rate
        self._limit = limit
        self._replicas = replicas
        self._partitions: dict[str, tuple[Replicas, frozenset[int] | None]] = {}
        """By topic: the list that was read, and the partitions of this broker in it; None for all."""

    def exceeded_until(self, now_ms: int) -> int | None:
        """When more may be moved of throttled replicas that are not in sync; None: now."""
        limit = self._limit()
        if limit >= NEVER:
            return None
        allowed_at = self._rate.falls_to(limit, now_ms)
        return allowed_at if allowed_at > now_ms else None

    def covers(self, name: TopicPartition) -> bool:
        """Whether the replica on this broker is throttled."""
        listed = self._replicas(name.topic)
        if not listed:
            self._partitions.pop(name.topic, None)
            return False
        held = self._partitions.get(name.topic)
        if held is None or held[0] is not listed:
            held = self._partitions[name.topic] = listed, self._read(listed)
        return held[1] is None or name.partition in held[1]

    def record(self, name: TopicPartition, size: int, now_ms: int) -> None:
        """Count bytes that were moved of a partition, if its replica is throttled and there is a limit at all."""
        if self._limit() < NEVER and self.covers(name):
            self._rate.record(size, now_ms)

    def _read(self, listed: Replicas) -> frozenset[int] | None:
        if listed == ("*",):
            return None
        pairs = (element.split(":") for element in listed)
        return frozenset(int(partition) for partition, broker in pairs if int(broker) == self._broker)


class Throttles:
    """Both sides of a broker's replication, and what it copies between its log directories."""

    def __init__(
        self, settings: BrokerSettings, rates: Callable[[], ThrottleRates], topic_config: Callable[[str], LogConfig]
    ) -> None:
        """`rates` and `topic_config` tell what is in force now."""
        window_ms = settings.replication_quota_window_size_seconds * 1000

        def rate() -> ByteRate:
            return ByteRate(settings.replication_quota_window_num, window_ms)

        self.leader = ReplicationThrottle(
            settings.broker_id,
            rate(),
            lambda: rates().leader,
            lambda topic: topic_config(topic).leader_replication_throttled_replicas,
        )
        self.follower = ReplicationThrottle(
            settings.broker_id,
            rate(),
            lambda: rates().follower,
            lambda topic: topic_config(topic).follower_replication_throttled_replicas,
        )
        self.moves: Callable[[], int] = lambda: rates().moves
        """Bytes per second, asked every time."""


def unlimited(settings: BrokerSettings) -> Throttles:
    """Throttles that hold no replication back, and moves between directories as the settings say."""
    nothing = LogConfig()
    rates = ThrottleRates(moves=settings.replica_alter_log_dirs_io_max_bytes_per_second)
    return Throttles(settings, lambda: rates, lambda _: nothing)


class _Window:
    __slots__ = ("size", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.size = 0


class ByteRate:
    """Bytes per second, averaged over at most `windows` windows of `window_ms` (Kafka's SimpleRate).

    A short burst counts as if it had taken a whole window. A clock that goes back makes it begin again: times from then
    on say nothing about what was counted before.
    """

    def __init__(self, windows: int, window_ms: int) -> None:
        self._window_ms = window_ms
        self._lasts_ms = windows * window_ms
        self._windows: deque[_Window] = deque()
        self._total = 0

    def record(self, size: int, now_ms: int) -> None:
        """Count `size` bytes as of now."""
        self._forget(now_ms)
        if not self._windows or now_ms - self._windows[-1].start_ms >= self._window_ms:
            self._windows.append(_Window(now_ms))
        self._windows[-1].size += size
        self._total += size

    def falls_to(self, limit: int, now_ms: int) -> int:
        """When the rate is no more than `limit` bytes per second, if nothing is counted until then; now if it is so."""
        self._forget(now_ms)
        total = self._total
        for window in self._windows:
            over = window.start_ms + self._lasts_ms
            if total * 1000 <= limit * self._window_ms:
                break
            averaged = window.start_ms - (-total * 1000 // limit) if limit > 0 else over
            if averaged < over:
                return max(averaged, now_ms)
            total -= window.size
            now_ms = max(now_ms, over)
        return now_ms

    def _forget(self, now_ms: int) -> None:
        """Drop windows that are over, or that have not begun yet by this clock."""
        windows = self._windows
        if windows and windows[-1].start_ms > now_ms:
            windows.clear()
            self._total = 0
        while windows and windows[0].start_ms + self._lasts_ms <= now_ms:
            self._total -= windows.popleft().size
