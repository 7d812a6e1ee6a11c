"""Leader epochs after a crash: the file, corrected by the batches that were read. Entries are (epoch, start offset)."""

from __future__ import annotations

import pytest

from regency.broker_agent.log.recovery import EpochReader, ReadRange, merge_epochs
from regency.kafka.record_batch import read_header


@pytest.mark.parametrize(
    ("on_file", "read", "merged"),
    [
        ([(0, 0), (1, 7)], [], [(0, 0), (1, 7)]),
        ([(0, 0), (3, 5)], [ReadRange(0, 10, ((0, 0), (2, 6)))], [(0, 0), (2, 6)]),
        ([(0, 0)], [ReadRange(4, 10, ((0, 4), (2, 6)))], [(0, 0), (2, 6)]),
        ([(0, 0), (1, 3), (5, 12)], [ReadRange(4, 10, ((1, 4), (2, 6)))], [(0, 0), (1, 3), (2, 6), (5, 12)]),
        ([(0, 0), (4, 10)], [ReadRange(4, 10, ((0, 4),))], [(0, 0), (4, 10)]),
        ([], [ReadRange(0, 4, ((1, 0),)), ReadRange(4, 9, ((1, 4), (2, 7)))], [(1, 0), (2, 7)]),
        ([(3, 0)], [ReadRange(4, 9, ((2, 4),))], [(3, 0)]),
    ],
)
def test_batches_that_were_read_decide_over_the_file(on_file, read, merged):
    assert merge_epochs(on_file, read) == merged


def test_a_reader_notes_where_the_epoch_changes_and_nothing_without_one(batch):
    reader = EpochReader(3)
    for base, epoch in ((3, -1), (4, 1), (5, 1), (6, 2)):
        reader.note(read_header(batch(base=base, epoch=epoch)))
    assert reader.range(7) == ReadRange(3, 7, ((1, 4), (2, 6)))
