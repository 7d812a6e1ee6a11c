"""Kills what a plan says, when enough rows went through, until the job has ended: one thread does all of it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from regency.cluster.cluster import Cluster
from regency.cluster.errors import ClusterTimeout
from regency.cluster.process.processes import ProcessState
from spark_kills.jobs import Fault, Job
from spark_kills.notes import FOLDER, now_ms, rows_by_process
from spark_kills.victims import Application, Process, application, wait_gone

LOOK_S = 0.05
SCAN_S = 1.0
"""Between looks at all processes there are."""
BUSY_S = 1.0
"""A worker whose rows grew within this time is in the middle of a task."""
JOB_S = 420.0
"""When a job hangs; they take a minute or two."""
GONE_S = 30.0
"""When whatever a dead driver left must have ended by itself."""


@dataclass
class Story:
    """What happened to a job."""

    kills: Counter[str] = field(default_factory=Counter)
    drivers: int = 0
    ended: bool = False
    failures: list[str] = field(default_factory=list)
    """Of the query, as Spark told them, each followed by a start from its checkpoint."""
    said: str = ""
    """What the last driver wrote to stderr."""
    left: list[str] = field(default_factory=list)
    """Processes that outlived their driver for long."""
    last_began_ms: int = 0
    """When the last driver was started, wall milliseconds."""
    seconds: float = 0.0


class _Driver:
    """One driver, and what it says."""

    def __init__(self, job: Job, notes: Path, said: Path) -> None:
        self._said = said
        with said.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spark_kills.driver", msgspec.json.encode(job).decode()],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={
                    **os.environ,
                    FOLDER: str(notes),
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                },
                start_new_session=True,
            )
        self.up = self.done = False
        self.failures: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                facts: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            self.up = self.up or "up" in facts
            self.done = self.done or "done" in facts
            if "failed" in facts:
                self.failures.append(facts["failed"])

    def ended(self) -> bool:
        return self.process.poll() is not None

    def finish(self) -> str:
        """After its end: what it wrote to stderr."""
        self.process.wait(30)
        self._reader.join(10)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return self._said.read_text(errors="replace")


class Killer:
    """Runs one job while it carries out a plan."""

    def __init__(self, cluster: Cluster, job: Job, notes: Path, seed: int) -> None:
        self._cluster = cluster
        self._job = job
        self._notes = notes
        self._choice = random.Random(f"victims {seed}")
        self._back: dict[int, float] = {}
        """Brokers that are away, and when they come back."""
        self._grown: dict[int, tuple[int, float]] = {}
        self.story = Story()

    def run(self, faults: list[Fault]) -> Story:
        """Run the job to its end. Raises TimeoutError."""
        began = time.monotonic()
        plan = list(faults)
        rows_then = 0
        seen: dict[int, Process] = {}
        scanned = 0.0
        driver = self._start()
        try:
            while True:
                if time.monotonic() - began > JOB_S:
                    raise TimeoutError(f"the job has not ended in {JOB_S:g} s: {driver.failures}")
                self._bring_back()
                if time.monotonic() - scanned > SCAN_S:
                    seen |= {each.pid: each for each in application(driver.process.pid).all}
                    scanned = time.monotonic()
                rows = self._look()
                if plan and rows - rows_then >= plan[0].after_rows:
                    time.sleep(plan[0].delay_s)
                    rows = self._look()
                    if driver.up and not driver.ended():
                        fault = plan.pop(0)
                        if self._strike(fault, driver.process.pid):
                            rows_then = rows
                        else:
                            plan.append(fault)  # nobody was there to be killed: others first
                if driver.ended():
                    self._note_end(driver)
                    if driver.done:
                        break
                    if driver.process.returncode >= 0 and not self._may_fail():
                        break
                    driver = self._start()
                time.sleep(LOOK_S)
        finally:
            self._end(driver, list(seen.values()))
            self._bring_back(now=True)
        self.story.seconds = time.monotonic() - began
        return self.story

    def _start(self) -> _Driver:
        self.story.drivers += 1
        self.story.last_began_ms = now_ms()
        return _Driver(self._job, self._notes, self._notes / f"driver-{self.story.drivers}.txt")

    def _may_fail(self) -> bool:
        """A batch write that failed is started anew, as another write."""
        return self._job.kind == "write" and not self._job.stream and self.story.drivers < 8

    def _note_end(self, driver: _Driver) -> None:
        self.story.said = driver.finish()
        self.story.failures += driver.failures
        if driver.process.returncode > 0:
            self.story.failures.append(self.story.said[-6000:])
        if driver.done:
            self.story.ended = True

    def _look(self) -> int:
        """Rows that went through all tasks so far, and who is at it."""
        now = time.monotonic()
        by_process = rows_by_process(self._notes)
        for pid, rows in by_process.items():
            if rows != self._grown.get(pid, (0, 0.0))[0]:
                self._grown[pid] = (rows, now)
        return sum(by_process.values())

    def _strike(self, fault: Fault, pid: int) -> bool:
        running = application(pid)
        if fault.who in ("leader", "pause"):
            struck = self._strike_leader(fault)
        elif fault.who == "stop":
            struck = running.driver[0].kill(signal.SIGUSR1)
        elif fault.who == "driver":
            struck = sum(each.kill() for each in self._choice.sample(running.driver, len(running.driver))) > 0
        else:
            struck = self._strike_one(fault.who, running)
        if struck:
            self.story.kills[fault.who] += 1
        return struck

    def _strike_one(self, who: str, running: Application) -> bool:
        """A worker in the middle of a task, or the executor of one."""
        now = time.monotonic()
        busy = [each for each in running.workers if now - self._grown.get(each.pid, (0, 0.0))[1] < BUSY_S]
        if not busy:
            return False
        worker = self._choice.choice(sorted(busy))
        if who == "worker":
            return worker.kill()
        executor = running.executor_of.get(worker.pid)
        return executor is not None and executor.kill()

    def _strike_leader(self, fault: Fault) -> bool:
        """A broker that leads a partition of what is read or written, once all brokers are there and in sync."""
        if self._back:
            return False
        try:
            self._cluster.wait_healthy(0.5)
            leaders = self._leaders()
        except (ClusterTimeout, KafkaException):
            return False
        if not leaders:
            return False
        broker = self._choice.choice(leaders)
        if fault.who == "pause":
            self._cluster.pause(broker)
        else:
            self._cluster.kill(broker)
        self._back[broker] = time.monotonic() + fault.back_after_s
        return True

    def _leaders(self) -> list[int]:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers, "log_level": 0})
        topics = admin.list_topics(timeout=5).topics
        names = [name for name in (self._job.source, self._job.topic) if name in topics]
        return sorted({led.leader for name in names for led in topics[name].partitions.values() if led.leader >= 0})

    def _bring_back(self, *, now: bool = False) -> None:
        for broker, when in list(self._back.items()):
            if now or time.monotonic() >= when:
                if self._cluster.broker_state(broker) is ProcessState.PAUSED:
                    self._cluster.resume(broker)
                else:
                    self._cluster.restart(broker)
                del self._back[broker]

    def _end(self, driver: _Driver, seen: list[Process]) -> None:
        """Leave nothing behind; whoever does not end by itself is told of."""
        if not driver.ended():
            for each in application(driver.process.pid).driver:
                each.kill()
        driver.finish()
        for each in wait_gone(seen, GONE_S):
            self.story.left.append(f"{each.pid} {each.command[:80]}")
            each.kill()
