"""How far the groups that are coordinated here are behind, as kafka_exporter tells it; looked at while somebody asks.

What groups have committed is copied on the data loop in slices, then the leaders of those partitions, which may be any
brokers, are asked where their logs end: over connections of its own, on a thread of its own. A scrape gets what was
found last, and waits for nobody.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

import msgspec

from regency.broker_agent.control.metadata_cache import MetadataCache, MetadataSnapshot
from regency.broker_agent.groups.api import Survey
from regency.broker_agent.groups.coordinator import GroupCoordinator
from regency.broker_agent.ports import Loop
from regency.kafka.fetching.values import OffsetsPlan
from regency.kafka.fetching.wire import LIST_OFFSETS_VERSION, offsets_reply, offsets_request
from regency.kafka.peer import PeerConnection, PeerUnavailable
from regency.model.clock import Clock
from regency.model.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.runtime.logging import is_power_of_ten
from regency.runtime.metrics import table_agent as names
from regency.runtime.metrics.families import Family, MetricName, Wanted, block, label_text, value, values

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 5.0
ASKED_FOR_S: Final = 150.0
"""So long after a scrape it is looked again and again: Prometheus asks every minute, or more often."""
SURVEY_TIMEOUT_S: Final = 30.0
ANSWER_TIMEOUT_MS: Final = 3_000
"""A leader that takes longer is not waited for: the lag of what it leads is unknown until the next look."""
PARTITIONS_AT_ONCE: Final = 2_000
_LATEST: Final = -1
_CONSUMER: Final = BrokerId(-1)
"""As who leaders are asked: a consumer hears of the high watermark."""

Address = tuple[str, int]


class Looked(msgspec.Struct, frozen=True):
    """What was found at `at_ms` (monotonic): groups, and where logs end as far as leaders told it."""

    at_ms: int
    survey: Survey
    ends: Mapping[TopicPartition, Offset]


class GroupLag:
    """`run` is the thread; `families` is called by those that serve scrapes, `stop` by any."""

    def __init__(
        self,
        settings: BrokerSettings,
        loop: Loop,
        coordinator: GroupCoordinator,
        metadata: MetadataCache,
        clock: Clock,
        connect: Callable[[str, int], PeerConnection] | None = None,
    ) -> None:
        self._settings, self._loop, self._clock = settings, loop, clock
        self._coordinator, self._metadata = coordinator, metadata
        self._connect = connect or self._connection
        self._peers: dict[Address, PeerConnection] = {}
        self._looked: Looked | None = None
        self._asked_ms: int | None = None
        self._asked, self._stopped = threading.Event(), threading.Event()
        self._failures = self._left_out = 0

    def run(self) -> None:
        """Look every five seconds, as long as that is asked for; until `stop`."""
        while not self._stopped.is_set():
            self._asked.wait()
            try:
                self._looked = looked = self.look()
                self._failures = 0
                self._tell_left_out(looked.survey.left_out)
            except Exception as error:  # noqa: BLE001 (metrics that fail must not end the agent)
                self._failures += 1
                if is_power_of_ten(self._failures) and not self._stopped.is_set():
                    logger.warning("the lag of groups is not known, %d times: %r", self._failures, error)
            self._stopped.wait(LOOK_EVERY_S)
            if self._asked_ms is None or self._clock.monotonic_ms() - self._asked_ms > ASKED_FOR_S * 1000:
                self._asked.clear()
                self._looked = None
                self._close()
        self._close()

    def stop(self) -> None:
        """End the thread; what it waits for ends too."""
        self._stopped.set()
        self._asked.set()
        for peer in list(self._peers.values()):
            peer.close()

    def _tell_left_out(self, offsets: int) -> None:
        if offsets and not self._left_out:
            logger.warning(
                "groups with %d committed offsets have no metrics: raise regency.group.metrics.max above %d",
                offsets,
                self._settings.regency_group_metrics_max,
            )
        self._left_out = offsets

    def look(self) -> Looked:
        """Groups and ends of logs now. Raises TimeoutError where the data loop does not get to it."""
        found: Future[tuple[Survey, MetadataSnapshot]] = Future()

        def done(survey: Survey) -> None:
            if found.set_running_or_notify_cancel():
                found.set_result((survey, self._metadata.current))

        most = self._settings.regency_group_metrics_max
        self._loop.post(lambda: self._coordinator.survey(most, done))
        try:
            survey, view = found.result(SURVEY_TIMEOUT_S)
        finally:
            found.cancel()
        at_ms = self._clock.monotonic_ms()
        # the ends are asked for afterwards: a group that is at its end is never before an end that is older
        return Looked(
            at_ms, survey, self._ends({name for offsets in survey.offsets.values() for name in offsets}, view)
        )

    def families(self, wanted: Wanted) -> Iterable[Family]:
        """What was found last; nothing at the first scrape, which begins the looking."""
        if not any(map(wanted, names.GROUP_METRICS)):
            return
        self._asked_ms = self._clock.monotonic_ms()
        self._asked.set()
        looked = self._looked
        if looked is None:
            return
        yield value(names.GROUP_AGE, max(0, self._clock.monotonic_ms() - looked.at_ms) / 1000)
        yield value(names.GROUP_LEFT_OUT, looked.survey.left_out)
        yield values(names.GROUP_MEMBERS, [((group,), count) for group, count in sorted(looked.survey.members.items())])
        yield from _by_offset(looked)

    def _ends(self, partitions: Iterable[TopicPartition], view: MetadataSnapshot) -> dict[TopicPartition, Offset]:
        by_address: dict[Address, list[TopicPartition]] = {}
        for name in sorted(partitions):
            known = view.partition(name)
            node = None if known is None else view.brokers.get(known.leader)
            endpoint = None if node is None else node.endpoint(self._settings.inter_broker_listener_name)
            if endpoint is not None:
                by_address.setdefault((endpoint.host, endpoint.port), []).append(name)
        for address in self._peers.keys() - by_address.keys():
            self._peers.pop(address).close()
        found: dict[TopicPartition, Offset] = {}
        for address, some in by_address.items():
            try:
                for start in range(0, len(some), PARTITIONS_AT_ONCE):
                    found.update(self._told(address, some[start : start + PARTITIONS_AT_ONCE]))
            except PeerUnavailable as error:
                logger.debug("the lag of groups is partly unknown: %s", error)
        return found

    def _told(self, address: Address, some: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        if address not in self._peers:
            self._peers[address] = peer = self._connect(*address)
            if self._stopped.is_set():
                peer.close()
        plan = OffsetsPlan(_LATEST, [(name, LeaderEpoch(NO_LEADER_EPOCH)) for name in some])
        answer = self._peers[address].exchange(offsets_request(plan, _CONSUMER), LIST_OFFSETS_VERSION)
        told = offsets_reply(answer).partitions
        return {name: each.offset for name, each in told if each.error is ErrorCode.NONE and each.offset >= 0}

    def _connection(self, host: str, port: int) -> PeerConnection:
        return PeerConnection(
            host,
            port,
            client_id=f"regency-group-lag-{self._settings.broker_id}",
            connect_timeout_ms=ANSWER_TIMEOUT_MS,
            request_timeout_ms=ANSWER_TIMEOUT_MS,
        )

    def _close(self) -> None:
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            peer.close()


def _by_offset(looked: Looked) -> Iterable[Family]:
    """By partition, and summed by topic: a sum that lacks a part would look like a group that has caught up."""
    offsets: list[tuple[str, float]] = []
    lags: list[tuple[str, float]] = []
    offset_sums: Counter[tuple[str, str]] = Counter()
    lag_sums: Counter[tuple[str, str]] = Counter()
    partial: set[tuple[str, str]] = set()
    unknown = 0
    for group, committed in sorted(looked.survey.offsets.items()):
        for name, offset in sorted(committed.items()):
            labels = label_text(names.GROUP_OFFSET.labels, (group, name.topic, str(name.partition)))
            offsets.append((labels, offset))
            offset_sums[group, name.topic] += offset
            end = looked.ends.get(name)
            if end is None:
                unknown += 1
                partial.add((group, name.topic))
                continue
            lag = max(0, end - offset)
            lags.append((labels, lag))
            lag_sums[group, name.topic] += lag
    yield value(names.GROUP_LAG_UNKNOWN, unknown)
    yield block(names.GROUP_OFFSET, offsets)
    yield block(names.GROUP_LAG, lags)
    yield _sums(names.GROUP_OFFSET_SUM, offset_sums)
    yield _sums(names.GROUP_LAG_SUM, {key: lag for key, lag in lag_sums.items() if key not in partial})


def _sums(name: MetricName, rows: Mapping[tuple[str, str], int]) -> Family:
    return block(name, [(label_text(name.labels, key), number) for key, number in sorted(rows.items())])
