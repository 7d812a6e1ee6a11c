"""The agent as a source of metrics. Made before its parts; what is not there yet is left out of a scrape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path
from time import perf_counter_ns

from regency.broker_agent.assembly import Parts
from regency.broker_agent.listener.stats import ListenerStats
from regency.broker_agent.log.directories.log_cleaning import CleaningCounts
from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.metrics import group_families, listener_families, replica_families
from regency.broker_agent.metrics.group_lag import GroupLag
from regency.broker_agent.metrics.probes import Recovery
from regency.broker_agent.metrics.replica_rows import look
from regency.broker_agent.process.data_loop import DataLoop, PatientWorker
from regency.broker_agent.process.loop_meter import LoopMeter
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.model.clock import Clock
from regency.model.ids import NO_BROKER_EPOCH
from regency.runtime.metrics import table_agent as names
from regency.runtime.metrics.families import QUANTILES, Family, Labels, Wanted, timers, value, values

_IO = Path("/proc/self/io")


class BrokerState(IntEnum):
    """Kafka's numbers for what a broker does."""

    STARTING = 1
    RECOVERING = 2
    RUNNING = 3
    HANDING_OVER = 6
    STOPPING = 7


class AgentMetrics:
    """Everything about one agent. `collect` is called on the thread that serves a scrape."""

    def __init__(
        self, loop: DataLoop, meter: LoopMeter, recovery: Recovery, disk_worker: PatientWorker, clock: Clock
    ) -> None:
        self.state = BrokerState.STARTING
        self.parts: Parts | None = None
        self.listener: ListenerStats | None = None
        self.groups: GroupLag | None = None
        """All are set once they are there."""
        self._disk_worker = disk_worker
        self._loop = loop
        self._meter = meter
        self._recovery = recovery
        self._clock = clock
        self._texts = replica_families.PartitionTexts()
        self._space: Mapping[Path, tuple[int, int]] = {}
        self._measuring = False

    def collect(self, wanted: Wanted) -> Iterable[Family]:
        """Everything that there is at this moment."""
        yield from self._process()
        parts = self.parts
        if parts is not None:
            yield from self._replicas(parts.replicas, parts.logs, wanted)
            yield from group_families.groups(parts.groups)
        if self.groups is not None:
            yield from self.groups.families(wanted)
        if self.listener is not None:
            yield from listener_families.traffic(self.listener, wanted)
            yield from listener_families.requests(self.listener, LoopMeter.now_ms())
            yield listener_families.connections(self.listener)
            yield value(names.INCOMING, self.listener.incoming_bytes)
            yield value(names.UNSENT, self.listener.unsent_bytes)
            yield value(names.HELD_BACK, self.listener.fetches_held_back)
            yield listener_families.closed(self.listener)
            by_control = parts.service.fenced if parts is not None else {}
            yield listener_families.fenced(self.listener, by_control)

    def _process(self) -> Iterable[Family]:
        state, parts = self.state, self.parts
        if state is BrokerState.STARTING and parts is None and self._recovery.count:
            state = BrokerState.RECOVERING
        ruling = None if parts is None else parts.metadata.ruling
        yield value(names.BROKER_STATE, state)
        yield value(names.NETWORK_IDLE, self._meter.idle_share)
        yield value(names.HANDLERS_IDLE, self._meter.idle_share)
        yield from timers(names.LOOP_LAG, {(): self._meter.lag}, LoopMeter.now_ms())
        yield values(names.LOOP_STEP, _steps(self._meter))
        yield value(names.CONTROLLER_EPOCH, 0 if ruling is None else ruling.epoch)
        yield value(names.BROKER_EPOCH, NO_BROKER_EPOCH if parts is None else parts.registration.epoch())
        yield value(names.LOGS_OPENED, self._recovery.opened)
        yield value(names.LOGS_FOUND, self._recovery.count)
        yield from _disk()

    def _replicas(self, replicas: ReplicaManager, logs: LogManager, wanted: Wanted) -> Iterable[Family]:
        now_ms = self._clock.monotonic_ms()
        yield from timers(names.FLUSHES, {(): logs.flushes}, now_ms)
        put_off = sum(logs_of.directory.shortages for logs_of in logs.directories)
        yield value(names.SHORTAGES, put_off + self._disk_worker.retries)
        yield from self._volumes(logs)
        if replicas.cleaning is not None:
            yield from _cleaning(replicas.cleaning.counts, now_ms)
        if not any(map(wanted, (*replica_families.LOOKED_FOR, names.SCRAPE_WAIT))):
            return
        began = perf_counter_ns()
        found = look(self._loop, replicas, logs, now_ms)
        yield value(names.SCRAPE_WAIT, (perf_counter_ns() - began) / 1e9)
        yield from replica_families.sums(found)
        yield from self._texts.families(found, wanted)
        listener = self.listener
        if listener is not None:
            topics = {row.topic for row in found.hosted}
            self._loop.post(lambda: listener.traffic.keep(topics))

    def _volumes(self, logs: LogManager) -> Iterable[Family]:
        """Sizes as they were measured for the scrape before: a volume that hangs holds up no scrape."""
        space = self._space
        if not self._measuring:
            self._measuring = True
            self._loop.post(lambda: logs.measure_space(self._measured))
        yield values(names.DIRECTORY_TOTAL, [((str(path),), total) for path, (total, _) in space.items()])
        yield values(names.DIRECTORY_USABLE, [((str(path),), usable) for path, (_, usable) in space.items()])

    def _measured(self, space: Mapping[Path, tuple[int, int]]) -> None:
        self._space, self._measuring = space, False


def _cleaning(counts: CleaningCounts, now_ms: int) -> Iterable[Family]:
    """What compaction has done; of each log directory what it gave up."""
    yield value(names.CLEANER_MAP, counts.map_percent)
    yield value(names.CLEANER_RECOPY, counts.recopied_percent)
    yield value(names.CLEANER_TIME, counts.seconds)
    yield value(names.CLEANER_DELAY, counts.delay_seconds)
    yield value(names.CLEANER_DEAD, int(counts.deaths > 0))
    yield value(names.CLEANER_DIRTY, counts.dirty_percent)
    yield value(names.CLEANER_LOOKED, now_ms - counts.looked_ms)
    given_up = [((str(path),), found) for path, found in counts.uncleanable.items()]
    yield values(names.UNCLEANABLE, [(label, found.partitions) for label, found in given_up])
    yield values(names.UNCLEANABLE_BYTES, [(label, found.size_bytes) for label, found in given_up])
    yield value(names.CLEANINGS, counts.cleanings)
    yield value(names.CLEANED_READ, counts.bytes_read)
    yield value(names.CLEANED_WRITTEN, counts.bytes_written)


def _steps(meter: LoopMeter) -> Iterable[tuple[Labels, float]]:
    """Rows of the loop's steps: Kafka's quantiles as dashboards spell them, and the longest."""
    quantiles = (*QUANTILES, ("1", 1.0))
    for clock, times in meter.steps.items():
        read = times.read(LoopMeter.now_ms(), [at for _, at in quantiles])
        for (text, _), ms in zip(quantiles, read.quantiles_ms, strict=True):
            yield (clock, text), ms / 1000


def _disk() -> Iterable[Family]:
    """What this process had the disks do, where the operating system tells."""
    try:
        lines = _IO.read_text(encoding="ascii").splitlines()
    except OSError:
        return
    told = dict(line.split(": ", 1) for line in lines if ": " in line)
    for name, key in ((names.DISK_READ, "read_bytes"), (names.DISK_WRITE, "write_bytes")):
        if key in told:
            yield value(name, int(told[key]))
