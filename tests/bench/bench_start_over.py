"""What changes all logs of an agent at once costs its data loop: `./dev bench start-over --json FILE`.

Real log files below one directory, a real data loop and its worker pool; the leader is a stand-in on the same loop.
Every follower is told that it is out of range of a leader that begins later, as after longer away than the retention
lasts; then that it differs below its recovery point, as after a failover. At last a setting of all brokers changes.
Counted until each fetches again, or goes by the setting: the longest step of the loop, by processor time and by time,
the longest that a call from another thread waited for the loop, as /livez does, and how often the checkpoint of
recovery points was written. `--sync-ms` makes every sync last longer.
"""

from __future__ import annotations

import asyncio
import gc
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from crc32c import crc32c
from reporting import Figures, count, parser, run, say, write_report

from regency.broker_agent.__main__ import GC_THRESHOLDS
from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.ports import Worker
from regency.broker_agent.process.data_loop import DataLoop, LoopWorker
from regency.broker_agent.process.loop_meter import MeteredSelector
from regency.broker_agent.registry.topic_configs import TopicConfigs
from regency.broker_agent.replication.api import LeaderAddress
from regency.broker_agent.replication.fetcher.fetcher_pool import FetcherPool, FollowTask, TransportSpec
from regency.broker_agent.replication.fetcher.fetcher_thread import Command, Outcome, Rested
from regency.broker_agent.replication.followers import ReplicationRules
from regency.broker_agent.replication.partition import Partition
from regency.kafka.fetching.values import (
    EpochEndOffset,
    FetchedPartition,
    FetchPlan,
    FetchReply,
    ListedOffset,
    OffsetsPlan,
    OffsetsReply,
    Pause,
)
from regency.kafka.logfiles.file_names import RECOVERY_POINTS
from regency.model import znodes
from regency.model.clock import SystemClock
from regency.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.model.settings.log_config import LogConfig
from regency.model.znodes import paths as znode_paths
from regency.runtime.disk import OsDisk
from regency.runtime.zookeeper.session import Stat, WatchEvent, WatchEventType, WatchMode, Znode

T = TypeVar("T")

ID = TopicId(UUID(int=7))
HELD, CUT_AT, BEGINS_AT = Offset(6), Offset(4), Offset(1_000)
"""Where followers end; where the one leader differs, and where the other begins."""
POLL_S = 0.05
WORKERS = 8


class SlowDisk(OsDisk):
    """A disk whose syncs take longer."""

    def __init__(self, extra_ms: int) -> None:
        super().__init__()
        self.extra_s = extra_ms / 1000
        self.checkpoints = 0
        """How often the checkpoint of recovery points was replaced."""

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self.checkpoints += target.name == RECOVERY_POINTS

    def sync(self, fd: int) -> None:
        super().sync(fd)
        time.sleep(self.extra_s)

    def sync_path(self, path: Path) -> None:
        super().sync_path(path)
        time.sleep(self.extra_s)


class Leader:
    """A transport that answers by itself: `first` to who asks from another offset than `wanted`."""

    def __init__(
        self, deliver: Callable[[Outcome], None], first: FetchedPartition, wanted: Offset, done: Callable[[int], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver
        self._first = first
        self._wanted = wanted
        self._done = done
        self._level: set[TopicPartition] = set()
        self._pause: asyncio.Handle | None = None
        self.alive = True

    def send(self, command: Command) -> None:
        """Answer, as soon as there is something to say. Any command ends a pause."""
        if self._pause is not None:
            self._pause.cancel()
        if isinstance(command, Pause):
            if command.milliseconds is not None:
                self._pause = self._loop.call_later(command.milliseconds / 1000, self._deliver, Rested())
        elif isinstance(command, OffsetsPlan):
            listed = ListedOffset(ErrorCode.NONE, -1, BEGINS_AT)
            self._loop.call_soon(self._deliver, OffsetsReply([(name, listed) for name, _ in command.partitions]))
        else:
            self._fetch(command)

    def _fetch(self, plan: FetchPlan) -> None:
        differ = [each.topic_partition for each in plan.partitions if each.fetch_offset != self._wanted]
        self._level.update(each.topic_partition for each in plan.partitions if each.fetch_offset == self._wanted)
        self._done(len(self._level))
        reply = FetchReply(ErrorCode.NONE, 1, [(name, self._first) for name in differ])
        self._loop.call_later(0 if differ else POLL_S, self._deliver, reply)

    def redirect(self, address: LeaderAddress) -> None:
        """There is only this one."""

    def close(self) -> None:
        """Nothing is delivered any more: the loop ends."""


class NoPeers:
    """Nobody else is known."""

    def broker_epoch(self, broker: BrokerId) -> BrokerEpoch | None:
        """Not known."""

    def is_shutting_down(self, broker: BrokerId) -> bool:
        return False

    def has_partition(self, topic_partition: TopicPartition) -> bool:
        return False

    def confirm(self, broker: BrokerId, epoch: BrokerEpoch) -> None:
        """Nobody asks."""


class Longest:
    """Stands where the loop's meter keeps times."""

    def __init__(self) -> None:
        self.us = 0

    def record(self, duration_us: int, now_ms: int) -> None:
        del now_ms
        self.us = max(self.us, duration_us)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--partitions", type=count, nargs="+", default=[100, 2_000, 5_000])
    options.add_argument("--sync-ms", type=count, default=10, help="what a sync takes more (default %(default)s)")
    arguments = options.parse_args()
    gc.set_threshold(*GC_THRESHOLDS)
    results: dict[str, object] = {}
    for partitions in arguments.partitions:
        for name, first, wanted in (
            ("start over", FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE), BEGINS_AT),
            ("cut", FetchedPartition(ErrorCode.NONE, diverging=EpochEndOffset(LeaderEpoch(0), CUT_AT)), CUT_AT),
        ):
            figures = at_one_loop(_start_over, partitions, arguments.sync_ms, first, wanted)
            say(f"{partitions} {name}: " + "  ".join(f"{key}={value}" for key, value in figures.items()))
            results[f"{name}, {partitions}"] = figures
        figures = at_one_loop(_change_default, partitions)
        say(f"{partitions} default changed: " + "  ".join(f"{key}={value}" for key, value in figures.items()))
        results[f"default changed, {partitions}"] = figures
    write_report(arguments.json, {"sync_ms": arguments.sync_ms}, results)


def at_one_loop(measure: Callable[..., Coroutine[None, None, Figures]], partitions: int, *details: object) -> Figures:
    """The figures of `measure` on a data loop of its own, with logs below a directory of its own."""
    selector = MeteredSelector()
    with (
        tempfile.TemporaryDirectory(prefix="regency-bench-") as directory,
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner,
    ):
        return runner.run(measure(selector, Path(directory), partitions, *details))


async def _start_over(
    selector: MeteredSelector, directory: Path, partitions: int, sync_ms: int, first: FetchedPartition, wanted: Offset
) -> Figures:
    """So many followers hear `first`, until they ask from `wanted`."""
    names = [TopicPartition("t", number) for number in range(partitions)]
    _fill(directory, names)
    loop = DataLoop(lambda name, error: sys.exit(f"{name}: {error!r}"))
    worker, disk = LoopWorker(loop, WORKERS, "worker"), SlowDisk(sync_ms)
    logs = _open(directory, worker, disk)
    level = asyncio.Event()

    def done(count: int) -> None:
        if count == partitions:
            level.set()

    def transport(spec: TransportSpec, deliver: Callable[[Outcome], None]) -> Leader:
        del spec
        return Leader(deliver, first, wanted, done)

    settings = BrokerSettings(broker_id=BrokerId(1))
    pool = FetcherPool(settings, SystemClock(), lambda: BrokerEpoch(1), transport, logs.settle)
    rules = ReplicationRules(BrokerId(1), 30_000, NoPeers(), lambda _: 1)
    tasks = [FollowTask(Partition(name, ID, _log(logs, name), rules), LeaderEpoch(1)) for name in names]
    probe = Probe(loop)
    cpu, wall = Longest(), Longest()
    await asyncio.sleep(0.1)
    selector.steps_cpu, selector.steps_wall = cpu, wall  # type: ignore[assignment]
    written, began = disk.checkpoints, time.monotonic()
    asyncio.get_running_loop().call_soon(pool.follow, LeaderAddress(BrokerId(2), BrokerEpoch(1), "leader", 1), tasks)
    await level.wait()
    took = time.monotonic() - began
    waited = probe.stop()
    pool.close()
    worker.close()
    writes, disk.extra_s = disk.checkpoints - written, 0.0
    logs.close()
    return {**_figures(took, cpu, wall, waited), "recovery_point_writes": writes}


async def _change_default(selector: MeteredSelector, directory: Path, partitions: int) -> Figures:
    """A setting of all brokers changes, for so many topics of one partition, until the last log goes by it."""
    names = [TopicPartition(f"t-{number}", 0) for number in range(partitions)]
    _fill(directory, names)
    loop = DataLoop(lambda name, error: sys.exit(f"{name}: {error!r}"))
    worker = LoopWorker(loop, 1, "worker")
    logs = _open(directory, worker, OsDisk())
    session, done, left = Settings(), asyncio.Event(), partitions

    def changed(configs: Mapping[str, LogConfig]) -> None:
        nonlocal left
        logs.set_configs(configs)
        left -= len(configs)
        if not left:
            done.set()

    configs = TopicConfigs(
        BrokerId(1),
        LogConfig(),
        session,
        worker,
        loop.post,
        lambda *_: None,
        changed,
        logs.topics,  # type: ignore[arg-type]
    )
    configs.watch()
    configs.load([name.topic for name in names])
    probe = Probe(loop)
    cpu, wall = Longest(), Longest()
    await asyncio.sleep(0.1)
    selector.steps_cpu, selector.steps_wall = cpu, wall  # type: ignore[assignment]
    began = time.monotonic()
    session.default = znodes.encode_config({"log.retention.ms": "1000"})
    session.notify(WatchEvent(WatchEventType.LOOK_AGAIN, znode_paths.CONFIG_CHANGES, znode_paths.CONFIG_CHANGES))
    await done.wait()
    took, waited = time.monotonic() - began, probe.stop()
    if any(_log(logs, name).config.retention_ms != 1000 for name in names):
        raise RuntimeError("a log does not go by the changed setting")
    worker.close()
    logs.close()
    return _figures(took, cpu, wall, waited)


def _figures(took: float, cpu: Longest, wall: Longest, waited: float) -> Figures:
    return {
        "seconds": round(took, 3),
        "longest_step_cpu_ms": round(cpu.us / 1000, 1),
        "longest_step_ms": round(wall.us / 1000, 1),
        "longest_call_ms": round(waited * 1000, 1),
    }


class Settings:
    """A session with a ZooKeeper that holds a setting of all brokers, and none of topics."""

    connected = True

    def __init__(self) -> None:
        self.default = b""
        self.notify: Callable[[WatchEvent], None]

    def watch(self, path: str, mode: WatchMode, on_event: Callable[[WatchEvent], None]) -> None:
        del path, mode
        self.notify = on_event

    def sync(self, path: str) -> None:
        """There is one server."""

    def read(self, path: str) -> None:
        """Not there."""

    def children(self, path: str) -> None:
        """None."""

    def read_many(self, paths: Sequence[str]) -> list[Znode | None]:
        found = Znode(znode_paths.DEFAULT_BROKER_CONFIG, self.default, Stat(1, 1, 0, 0, 0))
        return [found if path == found.path and self.default else None for path in paths]


class Probe:
    """Calls the loop from another thread again and again, as /livez does."""

    def __init__(self, loop: DataLoop) -> None:
        self._loop = loop
        self._longest = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """Seconds of the longest call. Does not wait for the one that is under way."""
        self._is_over.set()
        return self._longest

    def _run(self) -> None:
        while not self._is_over.wait(0.02):
            began = time.monotonic()
            self._loop.call(lambda: None, timeout_ms=600_000)
            self._longest = max(self._longest, time.monotonic() - began)


class AtOnce:
    """A worker that does everything when it is asked."""

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        done(work())


def _fill(directory: Path, names: Sequence[TopicPartition]) -> None:
    """Logs of a batch each, closed in order: recovery points stand at their ends."""
    logs = _open(directory, AtOnce(), OsDisk())
    batches = _batch(0, CUT_AT) + _batch(CUT_AT, HELD)
    for name in names:
        logs.create(name, ID, LogConfig(), is_new=True).append_as_follower(batches)
    logs.close()


def _batch(base: int, following: int) -> bytes:
    """Records nobody looks into, of leader epoch 0."""
    count = following - base
    tail = struct.pack(">hiqqqhii", 0, count - 1, 1, 1, -1, -1, -1, count) + bytes(100)
    return struct.pack(">qiibI", base, len(tail) + 9, 0, 2, crc32c(tail)) + tail


def _open(directory: Path, worker: Worker, disk: OsDisk) -> LogManager:
    return LogManager.open(
        [directory],
        LogConfig(),
        broker_id=BrokerId(1),
        cluster_id="bench",
        clock=SystemClock(),
        worker=worker,
        recovery_threads=2,
        on_dir_failure=lambda path, why: sys.exit(f"{path}: {why}"),
        disk=disk,
    )


def _log(logs: LogManager, name: TopicPartition) -> PartitionLog:
    log = logs.get(name)
    assert log is not None
    return log


if __name__ == "__main__":
    sys.exit(run(main))
