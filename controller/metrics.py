"""What a controller process tells of itself: metrics at a scrape, and probes; on the thread that serves them.

Snapshots, counters and timers are read: the controller's thread does nothing for it. One that does not rule has 0 for
its gauges, and no series by broker, topic or phase: a sum over a cluster, or an alert on one process, must not meet
what was so when this one still ruled. Series per topic are bounded by regency.controller.metrics.max.partitions; names
and help stand in `regency.runtime.metrics.table_controller`, those of brokers, topics and partitions are
kafka_exporter's. Offsets are what leaders reported last: a partition whose leader has not reported yet has none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from regency.controller.controller import Controller, View
from regency.controller.events import ControllerState, Event, EventLoop, EventQueue
from regency.controller.state.election import ELECTED_BECAUSE
from regency.controller.state.reconcile_rules import Repair
from regency.controller.state.reports import ReplicaReport, ReplicaReports
from regency.controller.state.topic_copies import Copies, TopicCopy
from regency.model.clock import Clock
from regency.model.facts import Broker
from regency.model.hosting import HostedRole
from regency.model.ids import NO_LEADER, BrokerId, TopicPartition
from regency.runtime.http.probes import Condition
from regency.runtime.metrics import table_controller as names
from regency.runtime.metrics.families import Block, Family, Wanted, block, timers, value, values
from regency.runtime.metrics.recent import RecentTimes

logger = logging.getLogger(__name__)

LONGEST_EVENT_MS = 300_000
"""An event that takes longer will never end. Not even a failover of millions of partitions does, and contact with
ZooKeeper is waited for only as long as a session lasts: who killed a slow failover would begin it again."""


def live_conditions(loop: EventLoop, events: EventMeter) -> list[Condition]:
    """What holds as long as a restart would not help; its event thread ends the process when it fails."""

    def event_thread() -> str:
        in_hand_ms = events.in_hand_ms()
        if in_hand_ms <= LONGEST_EVENT_MS:
            return ""
        return f"its event thread is busy with {loop.state.label} since {in_hand_ms // 1000} s"

    return [Condition("event_thread", event_thread)]


def ready_conditions(controller: Controller, session_id: Callable[[], int]) -> list[Condition]:
    """What must hold for this candidate to rule, or to rule next."""

    def session() -> str:
        return "" if session_id() else "there is no session with ZooKeeper"

    def elector() -> str:
        if controller.view.blocked:
            return controller.view.blocked
        return "" if controller.in_race else "its last look at /controller has not gone well, or there was none yet"

    return [Condition("session", session), Condition("elector", elector)]


class EventMeter:
    """Times of the events that one thread handles."""

    def __init__(self, queue: EventQueue, clock: Clock) -> None:
        self.waited = RecentTimes()
        """How long events waited in the queue."""
        self.handled = {state: RecentTimes() for state in ControllerState}
        """How long handling them took, by what they are about."""
        self._queue = queue
        self._clock = clock
        self._since_ms: int | None = None

    def timed(self, process: Callable[[Event], None]) -> Callable[[Event], None]:
        """`process`, with every call of it timed; it must be called by the thread that took the event."""

        def timed_process(event: Event) -> None:
            began_ms = self._since_ms = self._clock.monotonic_ms()
            self.waited.record(self._queue.waited_ms * 1000, began_ms)
            began_ns = time.perf_counter_ns()
            try:
                process(event)
            finally:
                took_us = (time.perf_counter_ns() - began_ns) // 1000
                self._since_ms = None
                self.handled[event.state].record(took_us, self._clock.monotonic_ms())

        return timed_process

    def in_hand_ms(self) -> int:
        """For how long the event in hand is being handled; 0 where none is."""
        since_ms = self._since_ms
        return 0 if since_ms is None else self._clock.monotonic_ms() - since_ms


class RequestMeter:
    """How long requests to brokers have waited, by broker. `requested` is what a channel manager is given."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waited: dict[BrokerId, RecentTimes] = {}

    def requested(self, broker: BrokerId, waited_ms: int) -> None:
        """A request is sent. One thread per broker."""
        waited = self._waited.get(broker)
        if waited is None:
            waited = self._waited.setdefault(broker, RecentTimes())
        waited.record(waited_ms * 1000, self._clock.monotonic_ms())

    def of(self, brokers: Collection[BrokerId]) -> dict[BrokerId, RecentTimes]:
        """The timers of these brokers, by id; those of others are forgotten, as their channels are."""
        for broker in [each for each in self._waited.copy() if each not in brokers]:
            self._waited.pop(broker, None)
        return dict(sorted(self._waited.copy().items()))


Told = Callable[[TopicPartition], ReplicaReport | None]

_STATES: Final = (
    names.REPLICAS,
    names.IN_SYNC_REPLICAS,
    names.LEADER_IS_PREFERRED,
    names.UNDER_REPLICATED,
    names.LEADER,
)
_OFFSETS: Final = (names.CURRENT_OFFSET, names.OLDEST_OFFSET)


def topic_families(copies: Copies, reports: ReplicaReports, wanted: Wanted, *, max_partitions: int) -> Iterable[Family]:
    """All that is wanted of them; nothing per partition where there are more of these than `max_partitions`."""
    yield value(names.BROKERS, len(copies.brokers))
    yield values(names.BROKER_INFO, [((str(id_), _address(each)), 1) for id_, each in sorted(copies.brokers.items())])
    yield block(names.TOPIC_PARTITIONS, [(f'topic="{copy.name}"', copy.partitions) for copy in copies.topics])
    partitions = sum(copy.partitions for copy in copies.topics)
    yield value(names.PARTITIONS_LEFT_OUT, 0 if partitions <= max_partitions else partitions)
    if partitions <= max_partitions:
        if any(map(wanted, _STATES)):
            yield from _states(copies)
        if any(map(wanted, _OFFSETS)):
            yield from _offsets(copies, {broker: reports.reader(broker) for broker in copies.brokers})


def _states(copies: Copies) -> list[Block]:
    """Replicas, ISR and leader of every partition: formatted in one pass, a few microseconds for each."""
    lines: tuple[list[str], ...] = ([], [], [], [], [])
    replicas, in_sync, preferred, under, leaders = (each.append for each in lines)
    of_replicas, of_in_sync, of_preferred, of_under, of_leader = (name.exported for name in _STATES)
    for copy in copies.topics:
        start = f'{{topic="{copy.name}",partition="'  # names of topics hold nothing that must be escaped
        for number, assignment in enumerate(copy.assignments):
            if assignment is None or not assignment.replicas:
                continue
            leader, isr = _led_by(copy, number)
            labels, wide, deep = f'{start}{number}"}}', len(assignment.replicas), len(isr)
            replicas(f"{of_replicas}{labels} {wide}\n")
            in_sync(f"{of_in_sync}{labels} {deep}\n")
            preferred(f"{of_preferred}{labels} {1 if leader == assignment.replicas[0] else 0}\n")
            under(f"{of_under}{labels} {1 if deep < wide else 0}\n")
            if leader != NO_LEADER:
                leaders(f"{of_leader}{labels} {leader}\n")
    return [Block(name, "".join(each)) for name, each in zip(_STATES, lines, strict=True)]


def _offsets(copies: Copies, told: Mapping[BrokerId, Told]) -> list[Block]:
    """What the leader of each partition said of it, as its leader; nothing where it has not yet."""
    lines: tuple[list[str], ...] = ([], [])
    current, oldest = (each.append for each in lines)
    of_current, of_oldest = (name.exported for name in _OFFSETS)
    for copy in copies.topics:
        start = f'{{topic="{copy.name}",partition="'
        for number in range(len(copy.assignments)):
            leader, _ = _led_by(copy, number)
            ask = told.get(leader)
            report = None if ask is None else ask(TopicPartition(copy.name, number))
            if report is None or report.role is not HostedRole.LEADER or report.topic_id != copy.topic_id:
                continue
            if report.high_watermark >= 0:
                current(f'{of_current}{start}{number}"}} {report.high_watermark}\n')
            if report.log_start_offset >= 0:
                oldest(f'{of_oldest}{start}{number}"}} {report.log_start_offset}\n')
    return [Block(name, "".join(each)) for name, each in zip(_OFFSETS, lines, strict=True)]


def _led_by(copy: TopicCopy, number: int) -> tuple[BrokerId, Sequence[BrokerId]]:
    """Leader and ISR; -1 for no leader, and no member where there never was an ISR."""
    leadership = copy.leadership[number] if number < len(copy.leadership) else None
    if leadership is None:
        return NO_LEADER, ()
    now = leadership.leader_and_isr
    return (now.leader if now.leader >= 0 else NO_LEADER), now.isr


def _address(broker: Broker) -> str:
    """Where clients reach it: its first listener, as Kafka's stand before others."""
    return f"{broker.endpoints[0].host}:{broker.endpoints[0].port}" if broker.endpoints else ""


LEFT_OUT = (
    "%d partitions have no series of their own at /metrics, there are more than %d: set "
    "regency.controller.metrics.max.partitions if the scraper can take them"
)


class ControllerMetrics:
    """A source of metrics over one controller."""

    def __init__(
        self,
        controller: Controller,
        queue: EventQueue,
        loop: EventLoop,
        *,
        events: EventMeter,
        requests: RequestMeter,
        clock: Clock,
        max_partitions: int,
    ) -> None:
        self._controller = controller
        self._queue = queue
        self._loop = loop
        self._events = events
        self._requests = requests
        self._clock = clock
        self._max_partitions = max_partitions
        self._warned = False

    def collect(self, wanted: Wanted) -> Iterable[Family]:
        """Everything at this moment."""
        view = (
            self._controller.view
        )  # one for all: who resigns meanwhile must not be told as ruling with nothing offline
        term = self._controller.term if view.ruling else None
        ruling = term is not None
        copies = Copies() if term is None else term.copies.take()
        yield from self._of_controller(copies, view, ruling=ruling)
        yield from self._of_events()
        yield from self._of_channels()
        yield from self._our_own(view, ruling=ruling)
        if ruling:
            reports, most = self._controller.reports, self._max_partitions
            if copies.partitions > most and not self._warned:
                self._warned = True
                logger.warning(LEFT_OUT, copies.partitions, most)
            yield from topic_families(copies, reports, wanted, max_partitions=most)

    def _of_controller(self, copies: Copies, view: View, *, ruling: bool) -> Iterator[Family]:
        yield value(names.ACTIVE_CONTROLLER_COUNT, ruling)
        yield value(names.OFFLINE_PARTITIONS_COUNT, view.offline_partitions if ruling else 0)
        yield value(names.PREFERRED_REPLICA_IMBALANCE_COUNT, copies.imbalanced)
        yield value(names.CONTROLLER_STATE, self._loop.state.gauge)
        yield value(names.GLOBAL_TOPIC_COUNT, copies.topic_count)
        yield value(names.GLOBAL_PARTITION_COUNT, copies.led)
        yield value(names.TOPICS_TO_DELETE_COUNT, copies.topics_to_delete)
        yield value(names.REPLICAS_TO_DELETE_COUNT, copies.replicas_to_delete)
        yield value(names.TOPICS_INELIGIBLE_TO_DELETE_COUNT, copies.topics_ineligible)
        yield value(names.REPLICAS_INELIGIBLE_TO_DELETE_COUNT, copies.replicas_ineligible)
        yield value(names.ACTIVE_BROKER_COUNT, len(copies.brokers))
        yield value(names.FENCED_BROKER_COUNT, 0)
        yield value(names.UNCLEAN_LEADER_ELECTIONS, self._controller.counters.unclean_elections)

    def _of_events(self) -> Iterator[Family]:
        now_ms = self._clock.monotonic_ms()
        for state, timer in self._events.handled.items():
            name = names.STATE_TIMERS.get(state.label)
            if name is not None:
                yield from timers(name, {(): timer}, now_ms)
        yield value(names.EVENT_QUEUE_SIZE, len(self._queue))
        yield from timers(names.EVENT_QUEUE_TIME, {(): self._events.waited}, now_ms)

    def _of_channels(self) -> Iterator[Family]:
        backlogs = {str(each.broker): each for each in self._controller.backlogs}
        waited = self._requests.of([each.broker for each in backlogs.values()])
        yield value(names.TOTAL_QUEUE_SIZE, sum(each.waiting for each in backlogs.values()))
        yield values(names.QUEUE_SIZE, [((broker,), each.waiting) for broker, each in backlogs.items()])
        rows: dict[tuple[str, ...], RecentTimes] = {(str(broker),): timer for broker, timer in waited.items()}
        yield from timers(names.REQUEST_RATE_AND_QUEUE_TIME, rows, self._clock.monotonic_ms())
        unacknowledged = [((broker,), each.unacknowledged) for broker, each in backlogs.items()]
        yield values(names.UNACKNOWLEDGED_STATES, unacknowledged)
        yield values(
            names.OLDEST_UNACKNOWLEDGED, [((broker,), each.oldest_ms / 1000) for broker, each in backlogs.items()]
        )

    def _our_own(self, view: View, *, ruling: bool) -> Iterator[Family]:
        controller, counters = self._controller, self._controller.counters
        yield value(names.CONTROLLER_EPOCH, view.epoch if ruling else 0)
        yield value(names.FAILOVERS, counters.failovers)
        phases = controller.failover if ruling else ()
        yield values(names.FAILOVER_SECONDS, [((phase,), spent_ms / 1000) for phase, spent_ms in phases])
        yield value(names.FENCED_WRITES, counters.fenced_writes)
        elections, repairs = counters.elections.copy(), counters.repairs.copy()
        yield values(names.ELECTIONS, [((why,), elections[why]) for why in ELECTED_BECAUSE])
        yield values(names.REPAIRS, [((each.value,), repairs[each.value]) for each in Repair])
        yield values(names.EVENTS, [((event,), count) for event, count in sorted(counters.events.copy().items())])
