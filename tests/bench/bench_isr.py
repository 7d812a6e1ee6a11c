"""How fast a leader writes ISR changes: `./dev bench isr --partitions 10000 --replication 3`.

With the check that no other member has restarted, and for comparison without. ZooKeeper is embedded and shares the
machine. Prints one line per round, and writes the figures with --json FILE.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

from reporting import count, parser, run, say, write_report

from regency.broker_agent.ports import IsrChange, IsrOutcome, IsrWritten
from regency.broker_agent.registry import incarnations
from regency.broker_agent.registry.isr_store import BATCH, IsrWriter
from regency.broker_agent.registry.registration import SessionFile, register
from regency.cluster.zookeeper import EmbeddedZooKeeper
from regency.model import znodes
from regency.model.clock import SystemClock
from regency.model.facts import Broker, Endpoint, LeaderAndIsr, LeaderIsrAndControllerEpoch
from regency.model.ids import (
    NO_BROKER_EPOCH,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicId,
    TopicPartition,
    ZkVersion,
)
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.client import connect
from regency.runtime.zookeeper.session import Create, ZkSession

TOPIC = "bench"
TOPIC_ID = TopicId(UUID(int=1))
LEADER = BrokerId(1)
TIMEOUT_S = 300


def registered(connect_string: str, broker: BrokerId, directory: Path) -> tuple[ZkSession, BrokerEpoch]:
    """A session that has registered a broker, and the broker's epoch."""
    session = connect(connect_string, session_timeout_ms=30_000, connect_timeout_ms=20_000)
    directory.mkdir()
    endpoint = Endpoint("PLAINTEXT", "here", 9092)
    facts = Broker(broker, NO_BROKER_EPOCH, (endpoint,))
    sessions = SessionFile(directory)
    done = register(session, facts, session.generation, sessions, SystemClock(), threading.Event(), whole=True)
    return session, done.epoch


class Bench:
    """The states of many partitions of one leader, and its ISR writer."""

    def __init__(self, session: ZkSession, epochs: dict[BrokerId, BrokerEpoch], partitions: int) -> None:
        self._session = session
        self._epochs = epochs
        self._partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self._version = ZkVersion(0)
        self._members = tuple(epochs)
        session.multi([Create(znode_paths.topic(TOPIC)), Create(znode_paths.topic_partitions(TOPIC))])
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(LEADER, LeaderEpoch(0), self._members), ControllerEpoch(1))
        data = znodes.encode_state(state)
        for begin in range(0, partitions, BATCH):
            few = self._partitions[begin : begin + BATCH]
            session.multi(
                [
                    op
                    for each in few
                    for op in (
                        Create(znode_paths.topic_partition(each)),
                        Create(znode_paths.partition_state(each), data),
                    )
                ]
            )

    def round(self) -> float:
        """Take the last member out of all ISRs, or in again; seconds from the first change to the last outcome."""
        everybody, last = tuple(self._epochs), max(self._epochs)
        leaves = last in self._members
        wanted = everybody[:-1] if leaves else everybody
        joining = () if leaves else ((last, self._epochs[last]),)
        outcomes: list[IsrOutcome] = []
        done = threading.Event()

        def took(outcome: IsrOutcome) -> None:
            outcomes.append(outcome)
            if len(outcomes) == len(self._partitions):
                done.set()

        writer = self._writer()
        thread = threading.Thread(target=writer.run, daemon=True)
        started = time.perf_counter()
        for each in self._partitions:
            epochs = LeaderEpoch(0), ControllerEpoch(1)
            change = IsrChange(
                each, TOPIC_ID, LEADER, *epochs, wanted, self._version, "bench", self._members, tuple(joining)
            )
            writer.submit(change, took)
        thread.start()
        if not done.wait(TIMEOUT_S):
            raise TimeoutError(f"{len(outcomes)} of {len(self._partitions)} changes are done after {TIMEOUT_S} s")
        seconds = time.perf_counter() - started
        writer.stop()
        thread.join()
        failed = [outcome for outcome in outcomes if not isinstance(outcome, IsrWritten)]
        if failed:
            raise RuntimeError(f"{len(failed)} changes were not written, such as {failed[0]}")
        self._members, self._version = wanted, ZkVersion(self._version + 1)
        return seconds

    def _writer(self) -> IsrWriter:
        generation = self._session.generation
        return IsrWriter(
            LEADER,
            self._session,
            SystemClock(),
            lambda call: call(),
            lambda: generation,
            lambda change, written: None,
            self._epochs.get,
        )


def measure(partitions: int, replication: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of every round, with the check and without by turns; the first two rounds of all warm up."""
    figures: dict[str, list[float]] = {"checked": [], "unchecked": []}
    with tempfile.TemporaryDirectory() as name, EmbeddedZooKeeper(Path(name) / "zookeeper") as zookeeper:
        found = {
            broker: registered(zookeeper.connect_string, broker, Path(name) / str(broker))
            for broker in map(BrokerId, range(1, replication + 1))
        }
        bench = Bench(found[LEADER][0], {broker: epoch for broker, (_, epoch) in found.items()}, partitions)
        for number in range(2 * rounds + 2):
            kind = "unchecked" if number // 2 % 2 else "checked"  # each takes out as often as it takes in
            if kind == "unchecked":
                with patch.object(incarnations, "guards", lambda _session, changes, _known: [()] * len(changes)):
                    seconds = bench.round()
            else:
                seconds = bench.round()
            if number >= 2:
                figures[kind].append(seconds)
                say(f"{kind} seconds={seconds:.2f} changes_per_second={partitions / seconds:.0f}")
        for session, _ in found.values():
            session.close()
    return figures


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--partitions", type=count, default=10_000)
    options.add_argument("--replication", type=count, default=3)
    options.add_argument("--rounds", type=count, default=4)
    arguments = options.parse_args()
    if arguments.rounds < 2:
        options.error("--rounds 1 has no round with the check and one without; it takes 2 or more")
    figures = measure(arguments.partitions, arguments.replication, arguments.rounds)
    results = {f"{kind}_best_seconds": round(min(seconds), 3) for kind, seconds in figures.items()}
    write_report(arguments.json, vars(arguments), results)


if __name__ == "__main__":
    sys.exit(run(main))
