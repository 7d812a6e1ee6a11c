"""How long `regency pipeline cluster-history` takes over a history of so many decisions.

    ./dev bench cluster-history --decisions 33 100000 1000000

The history is of brokers that die and come back, one after another: each takes the leadership of its partitions and its
place in their ISRs with it, and gets them back; every tenth time it is the broker that rules. Each size is a command of
its own on two cores, the start of Python, Java and Spark included; CPU is that of the command and of Java, without the
Python of tasks, which outlives Java by a moment and is waited for by none of both.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from reporting import Figures, count, medians, parser, repeat, run, say, write_report

from regency.history.records import Decision, encode_decisions
from regency.model.ids import BrokerId, ControllerEpoch, LeaderEpoch, ZkVersion

BROKERS = 6
REPLICAS = 3
STATES = 10
"""Of each partition, about; so many decisions to a partition."""
BEGIN_MS = 1_777_939_190_000
LINES_PER_FILE = 40_000
"""As a file of 8 MiB holds."""


def history(decisions: int) -> Iterator[Decision]:
    """So many decisions, in the order of time."""
    partitions = max(1, decisions // STATES)
    yield from islice(_endless(partitions), decisions)


def _endless(partitions: int) -> Iterator[Decision]:
    now, epoch, number = BEGIN_MS, 0, 0
    replicas = [[(first + next_) % BROKERS + 1 for next_ in range(REPLICAS)] for first in range(partitions)]
    leaders = [each[0] for each in replicas]
    isrs = [list(each) for each in replicas]
    epochs, versions = [0] * partitions, [-1] * partitions

    def note(event: str, subject: str, before: str, after: str, **state: object) -> Decision:
        nonlocal number
        number += 1
        ruler = BrokerId(epoch % BROKERS + 1)
        return Decision(
            ControllerEpoch(epoch), number, event, subject, before, after, "first live replica", now, ruler, **state
        )

    def change(event: str, index: int, leader: int, isr: list[int]) -> Decision:
        was = f"leader {leaders[index]}, isr {isrs[index]}, leader epoch {epochs[index]}"
        new = versions[index] < 0
        epochs[index] += not new
        versions[index] += 1
        leaders[index], isrs[index] = leader, isr
        return note(
            event,
            f"topic-{index // 100}-{index % 100}",
            "nothing" if new else was,
            f"leader {leader}, isr {isr}, leader epoch {epochs[index]}",
            leader=BrokerId(leader),
            isr=tuple(map(BrokerId, isr)),
            leader_epoch=LeaderEpoch(epochs[index]),
            version=ZkVersion(versions[index]),
        )

    rounds = 0
    while True:
        if rounds % 10 == 0:
            epoch, number = epoch + 1, 0
            yield note("failover", "controller", "a candidate", f"broker {epoch % BROKERS + 1}, epoch {epoch}")
        if rounds == 0:
            for index in range(partitions):
                yield change("create_topics", index, leaders[index], isrs[index])
        victim = rounds % BROKERS + 1
        now += 60_000
        yield note("broker_change", f"broker {victim}", "live, epoch 7", "dead")
        for index in range(partitions):
            if victim in isrs[index] and len(isrs[index]) > 1:
                rest = [each for each in isrs[index] if each != victim]
                yield change("broker_change", index, leaders[index] if leaders[index] != victim else rest[0], rest)
        now += 20_000
        yield note("broker_change", f"broker {victim}", "absent", "live, epoch 9")
        for index in range(partitions):
            if victim in replicas[index] and victim not in isrs[index]:
                now += 1
                yield change("isr_expand", index, leaders[index], [*isrs[index], victim])
        rounds += 1


def write(directory: Path, decisions: int) -> None:
    lines: list[Decision] = []
    files = 0
    for each in history(decisions):
        lines.append(each)
        if len(lines) == LINES_PER_FILE:
            (directory / f"controller-{files}.jsonl").write_bytes(encode_decisions(lines))
            files, lines = files + 1, []
    (directory / f"controller-{files}.jsonl").write_bytes(encode_decisions(lines))


def measure(directory: Path, decisions: int) -> Figures:
    """One command. Raises RuntimeError where it fails, or counts otherwise than was written."""
    to = directory / "told"
    words = ["pipeline", "cluster-history", str(directory / "history"), "--to", str(to), "--overwrite", "-o", "json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "regency", *words], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = json.loads(done.stdout)["decisions"] if done.stdout else 0
    if done.returncode or told != decisions:
        raise RuntimeError(f"status {done.returncode}, {told} of {decisions} decisions: {done.stderr[-500:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {f"seconds_{decisions}": round(seconds, 2), f"cpu_seconds_{decisions}": round(cpu, 2)}


def main() -> None:
    options = parser(__doc__, runs=3)
    options.add_argument("--decisions", type=count, nargs="+", default=[33, 100_000, 1_000_000])
    arguments = options.parse_args()
    results: Figures = {}
    runs: list[Figures] = []
    for decisions in arguments.decisions:
        with tempfile.TemporaryDirectory() as scratch:
            directory = Path(scratch)
            (directory / "history").mkdir()
            write(directory / "history", decisions)
            say(f"{decisions:,} decisions are written")
            measured = repeat(arguments.runs, lambda many=decisions, where=directory: measure(where, many))
        results |= medians(measured)
        runs += measured
    write_report(arguments.json, vars(arguments), results, runs)


if __name__ == "__main__":
    sys.exit(run(main))
