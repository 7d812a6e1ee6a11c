"""A compacted topic takes no record without a key, and says which have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cleaned_logs import Rec, make

from regency.kafka.codec import ProduceRequest
from regency.kafka.record_batch import compute_crc, read_header
from regency.kafka.record_keys import MOST_UNPACKED, RecordsRefused, records_without_key
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

Serve = Callable[..., None]
TOPIC = ProduceRequest.TopicProduceData
KEYED = Rec(b"k", b"v")
KEYLESS = Rec(None, b"v")


def produce(*batches: bytes, topic: str = "t", acks: int = -1) -> Any:
    partitions = [TOPIC.PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
    data = [TOPIC(name=topic, partition_data=partitions)]
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=1000, topic_data=data)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("version", [7, 8, 9])
def test_records_without_key_are_named_and_the_whole_batch_is_refused(serve: Serve, version: int, codec: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", 2)
        h.replicas.compacted.add("t")
        client = await h.connect()

        bad = make([KEYED, KEYLESS, KEYED, KEYLESS], 0, codec=codec)
        answer = await client.ask(produce(bad, make([KEYED, Rec(b"", b"")], 0, codec=codec)), version)

        refused, taken = answer.responses[0].partition_responses
        assert (refused.error_code, taken.error_code) == (ErrorCode.INVALID_RECORD, ErrorCode.NONE)
        assert [key.partition for key, _ in h.replicas.appended] == [1]
        if version >= 8:
            assert [each.batch_index for each in refused.record_errors] == [1, 3]
            words = "Compacted topic cannot accept message without key in topic partition t-0."
            assert {each.batch_index_error_message for each in refused.record_errors} == {words}
            assert refused.error_message == "2 records of the batch have no key, which a compacted topic demands."

    serve(scenario)


def test_other_topics_take_records_without_keys(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", 1)
        client = await h.connect()
        answer = await client.ask(produce(make([KEYLESS], 0)), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    serve(scenario)


def test_produces_of_a_connection_keep_their_order_while_keys_are_looked_for_aside(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", 1)
        h.replicas.compacted.add("t")
        client = await h.connect()
        batches = [make([Rec(b"%d" % number, b"v")], 0, codec=number % 2) for number in range(20)]

        for batch in batches:
            client.send(produce(batch), 9)
        answers = [await client.receive() for _ in batches]

        assert [each.responses[0].partition_responses[0].base_offset for each in answers] == list(range(20))
        assert [batch[61:] for _, batch in h.replicas.appended] == [batch[61:] for batch in batches]
        assert {key for key, _ in h.replicas.appended} == {TopicPartition("t", 0)}

    serve(scenario)


def changed(batch: bytes, at: int, octets: bytes) -> bytes:
    spoilt = bytearray(batch)
    spoilt[at : at + len(octets)] = octets
    spoilt[17:21] = compute_crc(spoilt, read_header(spoilt)).to_bytes(4, "big")
    return bytes(spoilt)


@pytest.mark.parametrize(
    ("at", "octets"),
    [
        (61, b"\x7f"),
        (61, b"\x01"),
        (61, b"\xff\xff\xff\xff\xff"),
        (64, b"\x02"),
        (65, b"\x60"),
        (57, b"\0\0\0\x02"),
        (57, b"\x7f\0\0\0"),
    ],
)
def test_malformed_records_are_refused(at: int, octets: bytes) -> None:
    with pytest.raises(RecordsRefused) as error:
        records_without_key(changed(make([KEYED], 0), at, octets))
    assert error.value.error is ErrorCode.INVALID_RECORD


def test_what_is_no_sound_batch_is_left_to_the_log() -> None:
    batch = make([KEYLESS], 0)
    assert records_without_key(batch) == [0]
    for spoilt in (b"", batch[:65], batch[:-1] + b"?", batch + b"x"):
        assert records_without_key(spoilt) == []


def test_what_unpacks_to_very_much_is_too_large() -> None:
    bomb = make([Rec(b"k", bytes(MOST_UNPACKED))], 0, codec=1)
    assert len(bomb) < 100_000
    with pytest.raises(RecordsRefused, match="unpacks to more than"):
        records_without_key(bomb)
