from __future__ import annotations

import pytest

from regency.model.ids import TopicPartition
from regency.pipeline.errors import OffsetsMalformed
from regency.pipeline.reading.offsets import named, offsets_dict, offsets_json, offsets_of_checkpoint, parse_offsets

OFFSETS = {TopicPartition("b", 0): 7, TopicPartition("a", 10): 3, TopicPartition("a", 2): 9}


def test_offsets_are_written_as_sparks_kafka_source_writes_them() -> None:
    assert offsets_json(OFFSETS) == '{"a":{"2":9,"10":3},"b":{"0":7}}'


def test_offsets_come_back_as_they_were_written() -> None:
    assert parse_offsets(offsets_json(OFFSETS), low=0) == OFFSETS
    assert offsets_of_checkpoint(offsets_dict(OFFSETS)) == OFFSETS
    assert offsets_of_checkpoint({}) == {}


def test_equal_offsets_are_equal_texts() -> None:
    turned = dict(reversed(OFFSETS.items()))
    assert offsets_json(turned) == offsets_json(OFFSETS)


@pytest.mark.parametrize(
    "value",
    [None, 5, [], {"t": 5}, {"t": {"0": -1}}, {"t": {"0": "5"}}, {"t": {"x": 5}}, {"t": {"0": 2**63}}, {"index": 3}],
)
def test_a_checkpoint_of_another_source_is_told(value: object) -> None:
    with pytest.raises(OffsetsMalformed, match="checkpointLocation"):
        offsets_of_checkpoint(value)


def test_many_partitions_are_named_by_the_first_few() -> None:
    assert named(TopicPartition("t", number) for number in range(8)) == "t-0, t-1, t-2, t-3, t-4 and 3 more"
