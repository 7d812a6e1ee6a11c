"""Starts what a bench of the control plane measures, fills ZooKeeper, and watches what happens there."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from reporting import say

from regency.cluster.zookeeper import EmbeddedZooKeeper
from regency.model import znodes
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicAssignment
from regency.model.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition
from regency.model.topic_ids import derive_topic_id
from regency.model.znodes import paths
from regency.protos import controller_pb2
from regency.runtime.grpc.channels import AdminClient, ControllerClient, call, open_channel
from regency.runtime.zookeeper.client import connect
from regency.runtime.zookeeper.session import Create, Op, WatchMode, ZkError, ZkSession

BENCHES = Path(__file__).parent.parent
PER_TOPIC = 50
CLUSTER = "bench-cluster-id-000000"
TIMEOUT_S = 120.0
SESSION_MS = 3_000


def until(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {timeout_s:g} s")
        time.sleep(0.02)


class Candidate:
    """A controller process; with `http` it serves metrics, at `http_port`."""

    def __init__(self, broker: BrokerId, connect_string: str, directory: Path, *, http: bool = False) -> None:
        self.broker = broker
        directory.mkdir(parents=True, exist_ok=True)
        overrides = {
            "broker.id": str(broker),
            "zookeeper.connect": connect_string,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROL://127.0.0.1:9093,CONTROLLER://127.0.0.1:0",
            "log.dirs": str(directory / "logs"),
            "regency.history.dir": str(directory / "history"),
            "regency.controller.http.port": "0" if http else "-1",
        }
        command = [sys.executable, "-m", "regency.controller"]
        for key, value in overrides.items():
            command += ["--override", f"{key}={value}"]
        self._log = (directory / "log").open("wb")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log)
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.port, self.http_port = int(told["port"]), int(told["http"])
        channel = open_channel(f"127.0.0.1:{self.port}")
        self.client, self.admin = ControllerClient(channel), AdminClient(channel)

    def describe(self) -> controller_pb2.DescribeControllerResponse:
        request = controller_pb2.DescribeControllerRequest()
        return call(self.client.describe, request, timeout_ms=10_000, target=f"controller {self.broker}")

    def peak_rss_mb(self) -> float:
        """The most memory it has ever had, MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = [each for each in status.splitlines() if each.startswith("VmHWM")]
        return round(int(line.split()[1]) / 1024, 1)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()


class ControlPlane:
    """ZooKeeper, `brokers` stand-in agents, and as many candidates as are asked for. A context manager."""

    def __init__(self, brokers: int) -> None:
        self.brokers = [BrokerId(number) for number in range(1, brokers + 1)]
        self.candidates: dict[BrokerId, Candidate] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.zookeeper = stack.enter_context(EmbeddedZooKeeper(self.directory / "zookeeper", heap_mb=1_500))
            self.connect_string = self.zookeeper.connect_string
            self.session: ZkSession = connect(self.connect_string, session_timeout_ms=60_000)
            stack.callback(self.session.close)
            self._make_parents()
            command = [
                sys.executable,
                "-m",
                "control_plane.stand_ins",
                self.connect_string,
                str(self.directory / "agents"),
            ]
            self._agents = subprocess.Popen(
                [*command, *map(str, self.brokers)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=BENCHES,
                text=True,
            )
            stack.callback(self._agents.wait)
            stack.callback(self._agents.kill)
            self._read()
            stack.callback(self._kill_candidates)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # Agents

    def ask_agents(self, command: str) -> Any:
        """Give the stand-ins a command; returns their answer."""
        assert self._agents.stdin is not None
        self._agents.stdin.write(command + "\n")
        self._agents.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._agents.stdout is not None
        return json.loads(self._agents.stdout.readline())

    # Controllers

    def start_candidate(self, broker: int, *, http: bool = False) -> Candidate:
        """Start a controller process; `http`: one that serves metrics."""
        directory = self.directory / f"controller-{broker}"
        candidate = Candidate(BrokerId(broker), self.connect_string, directory, http=http)
        self.candidates[candidate.broker] = candidate
        return candidate

    def wait_settled(self, candidate: Candidate) -> None:
        """Until it rules and every agent has acknowledged everything."""

        def settled() -> bool:
            described = candidate.describe()
            return described.active and described.state == "Idle" and not described.unacknowledged

        until(settled, f"controller {candidate.broker} settled")

    def _kill_candidates(self) -> None:
        for candidate in self.candidates.values():
            candidate.kill()

    # ZooKeeper

    def when_gone(self, path: str) -> Callable[[], float]:
        """Watch a znode; the result waits until it is gone and tells when the word of that came."""
        gone: list[float] = []
        happened = threading.Event()

        def look(_: object) -> None:
            now = time.monotonic()
            if not gone:
                gone.append(now)
                happened.set()

        self.session.watch(path, WatchMode.PERSISTENT, look)

        def wait() -> float:
            if not happened.wait(TIMEOUT_S):
                raise TimeoutError(f"{path} is still there")
            return gone[0]

        return wait

    def fill(self, partitions: int, replication: int = 3) -> None:
        """Write `partitions` led partitions in topics of 50, all in sync, leaders spread evenly."""
        done = 0
        for batch in self._batches(partitions, replication):
            for outcome in self.session.multi_pipelined(batch):
                if isinstance(outcome, ZkError) or not outcome.ok:
                    raise RuntimeError(f"filling ZooKeeper failed: {outcome}")
            done += len(batch) * PER_TOPIC
        say(f"filled ZooKeeper with {partitions:,} partitions")

    def led_by(self, broker: BrokerId, partitions: int) -> Iterator[tuple[str, TopicId, list[int]]]:
        """Of what `fill` has written the partitions that a broker leads: topic, its id, and their numbers."""
        for shift in range((partitions + PER_TOPIC - 1) // PER_TOPIC):
            name = f"topic-{shift:05d}"
            there = range(min(PER_TOPIC, partitions - shift * PER_TOPIC))
            led = [number for number in there if self.brokers[(number + shift) % len(self.brokers)] == broker]
            yield name, derive_topic_id(CLUSTER, name, 0), led

    def _batches(self, partitions: int, replication: int) -> Iterator[list[list[Op]]]:
        batch: list[list[Op]] = []
        for number in range((partitions + PER_TOPIC - 1) // PER_TOPIC):
            count = min(PER_TOPIC, partitions - number * PER_TOPIC)
            batch.append(self._topic(f"topic-{number:05d}", count, replication, shift=number))
            if len(batch) == 40:
                yield batch
                batch = []
        if batch:
            yield batch

    def _topic(self, name: str, count: int, replication: int, *, shift: int) -> list[Op]:
        brokers = self.brokers
        assignments = {}
        states: list[Op] = []
        for number in range(count):
            first = (number + shift) % len(brokers)
            replicas = tuple(brokers[(first + each) % len(brokers)] for each in range(replication))
            assignments[number] = ReplicaAssignment(replicas)
            decided = LeaderAndIsr(replicas[0], LeaderEpoch(0), replicas)
            data = znodes.encode_state(LeaderIsrAndControllerEpoch(decided, ControllerEpoch(0)))
            partition = TopicPartition(name, number)
            states += (Create(paths.topic_partition(partition)), Create(paths.partition_state(partition), data))
        topic = TopicAssignment(name, assignments, topic_id=derive_topic_id(CLUSTER, name, 0))
        return [Create(paths.topic(name), znodes.encode_topic(topic)), Create(paths.topic_partitions(name)), *states]

    def _make_parents(self) -> None:
        for path in paths.PERSISTENT_PARENTS:
            self.session.multi([Create(path)])
        self.session.multi([Create(paths.CLUSTER_ID, znodes.encode_cluster_id(CLUSTER))])
