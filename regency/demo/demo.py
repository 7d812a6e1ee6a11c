"""The demonstration: real records through a real cluster whose ruling agent is killed on the way, and the proof.

Runs against a `Cluster` that the caller started. Nothing here prints; a `DemoWatcher` is called.
"""

from __future__ import annotations

import threading
import time
from typing import ClassVar, Protocol

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from regency.cluster.cluster import Cluster
from regency.cluster.health import PartitionView
from regency.demo.flights import flights
from regency.demo.ledger import Ledger
from regency.demo.timeline import DemoReport, Entry, timeline
from regency.demo.workload import careful_producer, produce, read_back
from regency.history.files import read_history
from regency.model.errors import RegencyError
from regency.model.ids import BrokerId

TOPIC = "flights"
PARTITIONS = 6
REPLICATION_FACTOR = 3
MIN_INSYNC_REPLICAS = 2

_MOVE_TIMEOUT_S = 20.0
_HEAL_TIMEOUT_S = 60.0
_POLL_S = 0.1


class DemoFailed(RegencyError):
    """The cluster did not do what the demonstration asks of it."""

    code: ClassVar[str] = "demo_failed"


class DemoWatcher(Protocol):
    """Gets what happens, from several threads."""

    def sent(self, number: int) -> None:
        """Record `number` is being produced."""
        ...

    def read(self, count: int) -> None:
        """`count` more records were read back."""
        ...

    def step(self, words: str) -> None:
        """Something worth a line happened."""
        ...


class Story:
    """What the demonstration itself did and saw, told as it happens and kept for the timeline."""

    def __init__(self, watcher: DemoWatcher) -> None:
        self._watcher = watcher
        self.entries: list[Entry] = []

    def tell(self, words: str) -> None:
        """Something worth a line happened now."""
        self.entries.append(Entry(time.time_ns() // 1_000_000, "demo", (), words, ""))
        self._watcher.step(words)


class Saboteur:
    """Kills the ruling agent when told to, waits until the others have taken over, and brings it back."""

    def __init__(self, cluster: Cluster, story: Story) -> None:
        self._cluster = cluster
        self._story = story
        self._go = threading.Event()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="saboteur", daemon=True)
        self._failure: Exception | None = None
        self.victim: BrokerId | None = None

    def start(self) -> None:
        """Wait for `strike` on a thread of its own."""
        self._thread.start()

    def strike(self) -> None:
        """Do it now."""
        self._go.set()

    def cancel(self) -> None:
        """Never mind, when it has not begun."""
        self._given_up.set()
        self._go.set()

    def join(self) -> None:
        """Wait until the agent is back and every ISR is full. Raises what went wrong."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        self._go.wait()
        if self._given_up.is_set():
            return
        try:
            self._break_and_mend()
        except Exception as error:  # noqa: BLE001 - handed to the joining thread
            self._failure = error

    def _break_and_mend(self) -> None:
        snapshot = self._cluster.snapshot()
        victim = snapshot.controller
        led = [str(partition) for partition, view in snapshot.partitions.items() if _leader(view) == victim]
        if victim is None or not led:
            raise DemoFailed(f"controller {victim} leads no partition, so killing it would prove little.")
        self.victim = victim
        self._story.tell(f"kill -9 agent {victim}: it rules and leads {', '.join(sorted(led))}")
        self._cluster.kill(victim)
        self._wait_until_moved(victim)
        self._story.tell(f"every partition is led without broker {victim}; starting it again")
        self._cluster.restart(victim)
        self._cluster.wait_healthy(_HEAL_TIMEOUT_S)
        self._story.tell(f"broker {victim} is back; every ISR is full again")

    def _wait_until_moved(self, victim: BrokerId) -> None:
        deadline = time.monotonic() + _MOVE_TIMEOUT_S
        while True:
            snapshot = self._cluster.snapshot()
            behind = [
                str(partition)
                for partition, view in snapshot.partitions.items()
                if _leader(view) in (victim, None) or _in_sync(view, victim)
            ]
            if not behind and snapshot.controller not in (victim, None):
                return
            if time.monotonic() > deadline:
                raise DemoFailed(
                    f"{_MOVE_TIMEOUT_S:.0f} s after broker {victim} was killed it still leads or is in sync for "
                    f"{', '.join(behind) or 'nothing'}; controller: {snapshot.controller}.",
                    hint="Look into the agents' logs and histories (--dir keeps them).",
                )
            time.sleep(_POLL_S)


def run_demo(cluster: Cluster, watcher: DemoWatcher, *, count: int, started_ms: int) -> DemoReport:
    """Create the topic, produce `count` flights while the ruling agent is killed halfway, read back, compare.

    `started_ms` is the wall time that the timeline counts from.

    Raises DemoFailed, FlightsMissing, WorkloadStuck, EndsUnknown, ClusterError.
    """
    started_s = time.monotonic()
    story = Story(watcher)
    create_topic(cluster)
    cluster.wait_healthy(_HEAL_TIMEOUT_S)
    watcher.step(
        f"topic {TOPIC}: {PARTITIONS} partitions, replication factor {REPLICATION_FACTOR}, all led and in sync"
    )
    ledger = Ledger()
    saboteur = Saboteur(cluster, story)
    saboteur.start()

    def sent(number: int) -> None:
        if number == count // 2:
            saboteur.strike()
        watcher.sent(number)

    try:
        produce(careful_producer(cluster.bootstrap_servers), TOPIC, flights(count), ledger, on_sent=sent)
    except BaseException:
        saboteur.cancel()
        raise
    story.tell(f"{ledger.acked_count} of {ledger.sent_count} records acknowledged")
    saboteur.join()
    read_back(cluster.bootstrap_servers, TOPIC, ledger, on_read=watcher.read)
    entries = timeline(read_history(cluster.history_dirs), topic=TOPIC)
    return DemoReport(
        **msgspec.structs.asdict(ledger.verdict()),
        failed=ledger.failures,
        killed_broker=-1 if saboteur.victim is None else saboteur.victim,
        outages=ledger.outages(),
        missing=ledger.missing(),
        timeline=sorted([*entries, *story.entries], key=lambda entry: entry.time_ms),
        started_ms=started_ms,
        seconds=round(time.monotonic() - started_s, 3),
    )


def create_topic(cluster: Cluster) -> None:
    """Create the demonstration's topic through Kafka's protocol. Raises DemoFailed."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    topic = NewTopic(
        TOPIC,
        num_partitions=PARTITIONS,
        replication_factor=REPLICATION_FACTOR,
        config={"min.insync.replicas": str(MIN_INSYNC_REPLICAS)},
    )
    try:
        admin.create_topics([topic], operation_timeout=30, request_timeout=40)[TOPIC].result(timeout=45)
    except (KafkaException, TimeoutError) as error:
        raise DemoFailed(f"topic {TOPIC} could not be created: {error}.") from error


def _leader(view: PartitionView) -> BrokerId | None:
    return view.leadership.leader if view.leadership and view.leadership.has_leader else None


def _in_sync(view: PartitionView, broker: BrokerId) -> bool:
    return view.leadership is not None and broker in view.leadership.isr
