"""The log on a simulated disk: whatever is done to it and wherever its process or the power ends, it comes back whole.

After every crash the log is a prefix of what it held at some time since it was last flushed, and holds at least what
was flushed; its leader epochs and its producers are those of its batches.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.command import BY_MACHINE
from simulation.compacting_machine import CompactingMachine, records_of
from simulation.disk import SimDisk
from simulation.kernel.scheduler import Process, Scheduler
from simulation.kernel.threads import simulated_threads
from simulation.log_machine import TIMESTAMP, TP, Machine, read_all

from regency.kafka.logfiles.checkpoints import OffsetCheckpoint
from regency.model import crash_points
from regency.model.ids import Offset

CALM = st.one_of(
    st.tuples(
        st.just("append"), st.integers(1, 4), st.integers(0, 60), st.integers(-1, 1), st.sampled_from((1, 1, 1, 3))
    ),
    st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 60), st.integers(-1, 1), st.just(1)),
    st.tuples(st.just("truncate"), st.integers(0, 12)),
    st.tuples(st.just("start_over"), st.integers(0, 30)),
    st.tuples(st.just("prepare_cut"), st.integers(0, 12)),
    st.tuples(st.just("delete_records"), st.integers(1, 8)),
    st.tuples(st.just("work"), st.integers(1, 4)),
    st.tuples(st.sampled_from(("new_epoch", "flush", "flush_soon", "checkpoint", "roll", "recreate", "settle"))),
)
OPERATIONS = st.lists(
    st.one_of(
        CALM,
        CALM,
        CALM,
        st.tuples(st.just("restart"), st.booleans()),
        st.tuples(st.just("crash"), st.booleans()),
        st.tuples(st.just("crash_twice"), st.booleans(), st.integers(0, 30)),
        st.tuples(st.just("crash_during"), st.booleans(), st.integers(0, 15), CALM),
        st.tuples(st.just("fail_during"), st.booleans(), st.booleans(), st.integers(0, 10), CALM),
        st.tuples(st.just("starve_during"), st.integers(0, 8), CALM),
    ),
    max_size=25,
)


FOUND: dict[str, list[tuple[object, ...]]] = {
    "the log directory's own name is lost": [("append", 1, 0, 0, 1), ("restart", False)],
    "a new log's name is lost after a flush": [("append", 1, 0, 0, 1), ("flush",)],
    "leader epochs come back that belong to what was cut off": [
        ("append", 1, 0, 0, 1), ("truncate", 0), ("append", 1, 0, 0, 1), ("delete_records", 1), ("append", 1, 0, 0, 1),
    ],
    "leader epochs come back newer than their batches": [
        ("append", 2, 26, 0, 3), ("flush",), ("truncate", 4), ("append", 1, 0, 0, 1),
    ],
    "leader epochs below a log start that comes back are gone": [
        ("append", 2, 26, 0, 3), ("restart", False), ("delete_records", 6),
    ],
    "a truncation is undone after a clean shutdown": [("append", 1, 0, 0, 1), ("truncate", 2), ("restart", False)],
    "a log that began anew begins at 0": [("start_over", 7), ("settle",), ("work", 9)],
    "segments that were dropped follow what was appended since": [
        ("append", 1, 60, 0, 3), ("append", 1, 60, 1, 3), ("append", 1, 60, 0, 3), ("truncate", 7),
        ("append", 1, 60, -1, 1),
    ],
    "a crash within a truncation leaves a hole below the recovery point": [
        ("append", 1, 60, 0, 3), ("append", 1, 60, 1, 3), ("append", 1, 60, 0, 3), ("flush",), ("checkpoint",),
        ("work", 9), ("crash_during", True, 18, ("truncate", 8)),
    ],
    "a segment is long again below the one that begins where it was cut": [
        ("append", 2, 26, 0, 3), ("truncate", 4), ("roll",), ("append", 1, 26, 0, 1),
    ],
    "old records stand before the new ones of a later segment": [
        ("append", 2, 26, 0, 3), ("append", 3, 13, 1, 3), ("append", 1, 41, -1, 3), ("truncate", 12),
        ("append", 3, 53, -1, 1), ("append", 2, 26, -1, 1),
    ],
    "segments that recovery dropped follow what was appended since": [
        ("append", 2, 60, 0, 1), ("flush",), ("append", 2, 60, 0, 1), ("roll",), ("append", 2, 60, 0, 1),
        ("crash", True), ("append", 2, 60, 0, 1),
    ],
    "an emptied log begins where the disk says that it began": [
        ("append", 1, 0, 0, 1), ("starve_during", 1, ("delete_records", 1)), ("restart", False), ("truncate", 1),
        ("crash", False),
    ],
    "a log start above what was synced hides a hole": [
        ("append", 1, 34, -1, 1), ("append", 3, 34, -1, 3), ("delete_records", 7), ("checkpoint",),
        ("append", 3, 39, 1, 1), ("work", 3),
    ],
    "a log that was empty, and began where no checkpoint said, begins at 0 after the next power cut": [
        ("append", 1, 0, 0, 1), ("delete_records", 1), ("append", 1, 0, 0, 1), ("append", 1, 0, 0, 1),
        ("delete_records", 1), ("restart", False), ("truncate", 1), ("crash", True),
    ],
    "batches of an older leader epoch, which were cut off, follow those of the newer one": [
        ("append", 4, 26, 1, 3), ("roll",), ("append", 2, 24, 1, 2), ("crash_during", False, 42, ("truncate", 12)),
        ("append", 4, 59, -1, 2), ("append", 1, 47, -1, 3), ("crash", True),
    ],
}  # fmt: skip
"""What power cuts did before each of these was seen to; most need some luck, and so are tried many times."""


def run(operations: list[tuple[object, ...]], seed: int, kind: type[Machine] = Machine) -> None:
    """Do the operations on a machine of its own, then cut the power, then kill the process."""
    machine = kind(seed)
    with simulated_threads(machine.scheduler):
        machine.start()
        for operation in [*operations, ("crash", True), ("crash", False)]:
            do(machine, *operation)


@settings(max_examples=150, deadline=None)
@given(OPERATIONS, st.integers(0, 2**32))
def test_a_log_comes_back_whole_from_whatever_ends_it(operations: list[tuple[object, ...]], seed: int) -> None:
    run(operations, seed)


@pytest.mark.parametrize("operations", FOUND.values(), ids=FOUND)
def test_what_went_wrong_once_does_not_again(operations: list[tuple[object, ...]]) -> None:
    for seed in range(60):
        run(operations, seed)


FOUND_COMPACTED: dict[str, list[tuple[object, ...]]] = {
    "a segment that was dropped comes back above the hole in which the log was cut off": [
        ("append", 4, 54, 0, 3), ("crash_twice", True, 15), ("flush",), ("roll",), ("compact",), ("work", 5),
        ("truncate", 9),
    ],
    "what was flushed again after a cut was undone is doubted, as it stands above a hole and nothing follows it": [
        ("append", 1, 40, 1, 3), ("append", 4, 39, 0, 2), ("roll",), ("append", 4, 23, 1, 2), ("append", 1, 37, 0, 2),
        ("work", 9), ("flush",), ("roll",), ("compact",), ("work", 5), ("truncate", 18), ("crash_twice", True, 32),
        ("flush",),
    ],
    "a segment that begins in the hole in which the log was cut off is taken for one whose beginning is lost": [
        ("append", 1, 5, 0, 3), ("append_above_hole", 9, 1, 0), ("truncate", 6), ("roll",), ("append", 2, 3, 0, 1),
        ("flush",),
    ],
}  # fmt: skip
"""As above."""


@pytest.mark.parametrize("operations", FOUND_COMPACTED.values(), ids=FOUND_COMPACTED)
def test_what_went_wrong_once_does_not_again_in_a_compacted_log(operations: list[tuple[object, ...]]) -> None:
    for seed in range(60):
        run(operations, seed, CompactingMachine)


COMPACTIONS = st.one_of(
    st.tuples(st.just("compact")),
    st.tuples(st.just("work"), st.integers(1, 4)),
    st.tuples(st.just("append_above_hole"), st.integers(1, 9), st.integers(1, 3), st.integers(-1, 1)),
)
COMPACTED = st.lists(
    st.one_of(
        CALM,
        CALM,
        COMPACTIONS,
        COMPACTIONS,
        st.tuples(st.just("restart"), st.booleans()),
        st.tuples(st.just("crash"), st.booleans()),
        st.tuples(st.just("crash_twice"), st.booleans(), st.integers(0, 30)),
        st.tuples(st.just("crash_during"), st.booleans(), st.integers(0, 40), st.one_of(CALM, COMPACTIONS)),
        st.tuples(
            st.just("fail_during"), st.booleans(), st.booleans(), st.integers(0, 20), st.one_of(CALM, COMPACTIONS)
        ),
        st.tuples(st.just("starve_during"), st.integers(0, 8), st.one_of(CALM, COMPACTIONS)),
    ),
    max_size=30,
)
FILLED = [
    ("append", 2, 0, 0, 3),
    ("append", 3, 1, 1, 3),
    ("flush",),
    ("append", 2, 5, 0, 3),
    ("flush",),
    ("roll",),
    ("work", 9),
]
"""Something to compact."""


@settings(max_examples=150, deadline=None)
@given(COMPACTED, st.integers(0, 2**32))
def test_a_compacted_log_lacks_nothing_but_what_may_be_gone_whatever_ends_it(
    operations: list[tuple[object, ...]], seed: int
) -> None:
    run([*FILLED, *operations], seed, CompactingMachine)


@pytest.mark.parametrize("lossy", (False, True), ids=("killed", "power cut"))
@pytest.mark.parametrize("then", [("append", 1, 2, 0, 1), ("truncate", 9), ("start_over", 3), ("delete_records", 5)])
def test_a_compaction_may_end_before_any_step_of_the_disk(then: tuple[object, ...], *, lossy: bool) -> None:
    for after in range(60):
        operations = [
            *FILLED,
            ("compact",),
            ("crash_during", lossy, after, ("work", 9)),
            then,
            ("compact",),
            ("work", 9),
        ]
        run(operations, after, CompactingMachine)


def test_a_compaction_is_broken_off_where_clusters_hardly_do() -> None:
    passed: set[str] = set()
    crash_points.observe(passed.add)
    try:
        for steps in range(12):
            run([*FILLED, ("compact",), ("work", steps), ("truncate", 12)], steps, CompactingMachine)
    finally:
        crash_points.observe(None)
    assert passed >= BY_MACHINE


def test_a_log_that_is_compacted_keeps_one_record_of_each_key_below_its_active_segment() -> None:
    machine = CompactingMachine(1)
    with simulated_threads(machine.scheduler):
        machine.start()
        for operation in [*FILLED, *FILLED, ("compact",), ("work", 99)]:
            do(machine, *operation)
        cleaned_to = machine.log.cleaned_to
        assert machine.cleanings == 1
        assert cleaned_to == machine.log._segments.active.base_offset
        keys = [key for batch in read_all(machine.log) for offset, key, _ in records_of(batch) if offset < cleaned_to]
        assert sorted(keys) == sorted(set(keys))
        machine.check(lossy=False, exact=True)


@pytest.mark.parametrize("dies_before", (False, True), ids=("", "the process had died before"))
@pytest.mark.parametrize("jobs", range(5))
def test_no_checkpointed_high_watermark_covers_what_was_cut_off(jobs: int, *, dies_before: bool) -> None:
    for seed in range(30):
        machine = Machine(seed)
        with simulated_threads(machine.scheduler):
            machine.start()
            machine.append(3, 20, 0, 2)
            machine.flush()
            machine.truncate(3)  # as who led, and follows another leader now
            machine.append(2, 30, 1, 2)
            if dies_before:
                machine.crash(lossy=False)
            machine.log.set_high_watermark(machine.log.log_end_offset)
            committed = machine.content.batches
            machine.checkpoint()
            machine.work(jobs)
            machine.crash(lossy=True)
            high_watermark = machine.log.set_high_watermark(machine.manager.high_watermark_checkpoint(TP))
        claimed = [batch for batch in machine.content.batches if batch.base < high_watermark]
        assert claimed == list(committed[: len(claimed)]), (seed, high_watermark)


@pytest.mark.parametrize("is_known", (True, False), ids=("known", "not known yet"))
def test_the_greatest_timestamp_of_a_segment_rolled_after_a_flush_outlives_power_cuts(*, is_known: bool) -> None:
    for seed in range(60):
        machine = Machine(seed)
        with simulated_threads(machine.scheduler):
            machine.start()
            machine.append(2, 30, 0, 1)
            machine.work_off()
            with pytest.MonkeyPatch.context() as patch:
                flushes = []
                patch.setattr(machine.worker, "submit", lambda *job, flushes=flushes: flushes.append(job))
                machine.flush_soon()
            ((work, done),) = flushes
            outcome = work()
            steps = [lambda done=done, outcome=outcome: done(outcome), machine.roll]
            for step in steps if is_known else reversed(steps):
                step()
            machine.worker.jobs.clear()  # what is flushed for the roll takes too long
            machine.append(1, 30, 0, 1)
            machine.flush()
            machine.checkpoint()
            machine.work_off()
            machine.crash(lossy=True)
        assert {segment.largest_timestamp() for segment in machine.log._segments if segment.size} == {TIMESTAMP}, seed


def test_the_data_loop_never_waits_for_a_checkpoint_that_a_worker_writes_slowly() -> None:
    scheduler = Scheduler(3)
    device = SimDisk(scheduler)
    process = Process(scheduler, "agent")
    disk = device.mount(process)
    with simulated_threads(scheduler):
        checkpoint = OffsetCheckpoint(disk, Path("/offsets"))
        older, newer = checkpoint.decide(), checkpoint.decide()
        device.slow(1_000_000)
        scheduler.spawn(process, "worker", lambda: checkpoint.write({TP: Offset(1)}, older))
        scheduler.at(1000, lambda: checkpoint.write({TP: Offset(2)}, newer), process)
        scheduler.run_until(10_000_000)
    assert (checkpoint.read(), disk.names_in(Path("/"))) == ({TP: 2}, ["offsets"])


def do(machine: Machine, name, *details) -> None:
    if name == "crash":
        machine.crash(lossy=details[0])
    elif name == "crash_twice":
        machine.crash_twice(lossy=details[0], after=details[1])
    elif name == "crash_during":
        lossy, after, (inner, *inner_details) = details
        machine.crash(lossy=lossy, after=after, during=lambda: getattr(machine, inner)(*inner_details))
    elif name == "fail_during":
        lossy, full, after, (inner, *inner_details) = details
        machine.fail(lossy=lossy, full=full, after=after, during=lambda: getattr(machine, inner)(*inner_details))
    elif name == "starve_during":
        after, (inner, *inner_details) = details
        during = lambda: getattr(machine, inner)(*inner_details)  # noqa: E731
        machine.starve(after=after, during=during, repeats=inner in ("truncate", "start_over", "recreate"))
    else:
        getattr(machine, name)(*details)
        machine.note_flushed()
