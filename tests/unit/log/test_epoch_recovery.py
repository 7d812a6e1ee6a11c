"""Leader epochs after a crash: the file, corrected by the batches that were read. Entries are (epoch, start offset)."""

from __future__ import annotations

import pytest

from regency.broker_agent.log.recovery import EpochBegin, EpochReader, ReadRange, merge_epochs
from regency.kafka.record_batch import read_header


def dense(start, end, *begins):
    return ReadRange(start, end, tuple(EpochBegin(epoch, at, at) for epoch, at in begins))


@pytest.mark.parametrize(
    ("on_file", "read", "merged"),
    [
        ([(0, 0), (1, 7)], [], [(0, 0), (1, 7)]),
        ([(0, 0), (3, 5)], [dense(0, 10, (0, 0), (2, 6))], [(0, 0), (2, 6)]),
        ([(0, 0)], [dense(4, 10, (0, 4), (2, 6))], [(0, 0), (2, 6)]),
        ([(0, 0), (1, 3), (5, 12)], [dense(4, 10, (1, 4), (2, 6))], [(0, 0), (1, 3), (2, 6), (5, 12)]),
        ([(0, 0), (4, 10)], [dense(4, 10, (0, 4))], [(0, 0), (4, 10)]),
        ([], [dense(0, 4, (1, 0)), dense(4, 9, (1, 4), (2, 7))], [(1, 0), (2, 7)]),
        ([(3, 0)], [dense(4, 9, (2, 4))], [(3, 0)]),
    ],
)
def test_batches_that_were_read_decide_over_the_file(on_file, read, merged):
    assert merge_epochs(on_file, read) == merged


def test_a_reader_notes_where_the_epoch_changes_and_nothing_without_one(batch):
    reader = EpochReader(3)
    for base, epoch in ((3, -1), (4, 1), (5, 1), (6, 2)):
        reader.note(read_header(batch(base=base, epoch=epoch)))
    assert reader.range(7) == dense(3, 7, (1, 4), (2, 6))


@pytest.mark.parametrize(
    ("on_file", "merged"),
    [
        ([], [(0, 0), (3, 5)]),
        ([(0, 0), (3, 7)], [(0, 0), (3, 7)]),
        ([(0, 0), (1, 6), (2, 8), (3, 9)], [(0, 0), (1, 6), (2, 8), (3, 9)]),
        ([(0, 0), (1, 6)], [(0, 0), (3, 5)]),
        ([(0, 0), (7, 8), (8, 9)], [(0, 0), (3, 5)]),
        ([(0, 0), (3, 4)], [(0, 0), (3, 5)]),
    ],
    ids=[
        "no file: where the batch before ends",
        "the file knows where in the hole",
        "and of epochs of which no batch is left",
        "but not where it does not have the epoch that follows",
        "or has another one",
        "or not in the hole",
    ],
)
def test_in_a_hole_the_file_knows_what_no_batch_tells(batch, on_file, merged):
    """Offsets 5 to 9 were compacted away, and the batch at 9 is of epoch 3."""
    reader = EpochReader(0)
    for base, epoch in ((4, 0), (9, 3)):
        reader.note(read_header(batch(base=base, epoch=epoch)))
    assert merge_epochs(on_file, [reader.range(10)]) == merged
