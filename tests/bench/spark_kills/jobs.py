"""What a job under kills does, chosen by its seed."""

from __future__ import annotations

import random
from typing import Literal

import msgspec

CLUSTER = "local-cluster[2,1,1024]"
LOCAL = "local[2,4]"

Kind = Literal["write", "read"]


class Job(msgspec.Struct, frozen=True):
    """Everything a driver is told."""

    kind: Kind
    stream: bool
    master: str
    servers: str
    source: str
    """The topic it reads."""
    topic: str
    """The topic it writes."""
    folder: str
    """Where checkpoint and results are."""
    keyed: bool = True
    shuffled: bool = False
    task_rows: int = 5_000
    batch_rows: int = 20_000


class Fault(msgspec.Struct, frozen=True):
    """Somebody dies when about so many more rows went through the tasks, and a bit later."""

    who: str
    """worker, executor, driver, leader; pause: a leader stands still; stop: the query is stopped and started again."""
    after_rows: int
    delay_s: float
    back_after_s: float
    """Of a broker."""


FAULTS = {"worker": 6, "executor": 4, "driver": 3, "leader": 5, "pause": 2, "stop": 2}
"""How often each is chosen, in comparison."""


def chosen_job(seed: int, kind: Kind, *, servers: str, source: str, folder: str) -> Job:
    choice = random.Random(f"job {seed}")
    stream = choice.random() < 0.7
    keyed = choice.random() < 0.8
    return Job(
        kind=kind,
        stream=stream,
        master=CLUSTER if choice.random() < 0.75 else LOCAL,
        servers=servers,
        source=source,
        topic=f"kills-{kind}-{seed}",
        folder=folder,
        keyed=keyed,
        shuffled=kind == "write" and stream and keyed and choice.random() < 0.3,
    )


def chosen_faults(seed: int, job: Job, count: int, rows: int) -> list[Fault]:
    """The faults of a seed, in their order. `rows`: how many the job has in all; a write has each go by twice."""
    choice = random.Random(f"faults {seed}")
    rows *= 2 if job.kind == "write" else 1
    kinds = [who for who in FAULTS if who != "executor" or job.master == CLUSTER]
    if not job.stream:
        kinds.remove("stop")
    if job.kind == "write" and not job.stream:
        kinds.remove("driver")  # another save() is another write: see below
    found = []
    for _ in range(count):
        (who,) = choice.choices(kinds, [FAULTS[each] for each in kinds])
        gap = int(choice.uniform(0.01, 1.4) * rows / count)
        found.append(Fault(who, gap, choice.choice((0.0, choice.uniform(0, 1.5))), choice.uniform(0.3, 4)))
    if job.kind == "write" and not job.stream and choice.random() < 0.5:
        found.insert(choice.randrange(len(found) + 1), Fault("driver", rows // count, 0.0, 0.0))
    return found
