"""What a controller process tells at a scrape, on the thread that serves it: snapshots, counters and timers are read.

The controller's thread does nothing for it. One that does not rule has 0 for its gauges, and no series by broker, topic
or phase: a sum over a cluster, or an alert on one process, must not meet what was so when this one still ruled.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from regency.controller.controller import Controller, View
from regency.controller.event_loop import EventLoop, EventQueue
from regency.controller.metrics.meters import EventMeter, RequestMeter
from regency.controller.metrics.topic_metrics import topic_families
from regency.controller.state.election import ELECTED_BECAUSE
from regency.controller.state.reconcile_rules import Repair
from regency.controller.state.topic_copies import Copies
from regency.model.clock import Clock
from regency.runtime.metrics import table_controller as names
from regency.runtime.metrics.families import Family, Wanted, timers, value, values
from regency.runtime.metrics.recent import RecentTimes

logger = logging.getLogger(__name__)

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
