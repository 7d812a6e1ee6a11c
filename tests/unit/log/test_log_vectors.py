"""Every file of a log, byte by byte, against what was worked out without our code; and such files read by our log.

Batches come from the record builders of kafka-python and aiokafka; indexes, snapshots and checkpoints are packed by
hand. The checksum is computed bit by bit here, from the polynomial of RFC 3720.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaReader
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonReader
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from regency.broker_agent.log.errors import RecordsRejected
from regency.broker_agent.steps import at_once
from regency.kafka.record_batch import iter_batches
from regency.model.ids import TopicPartition
from regency.model.settings.log_config import LogConfig

NOW = 1_700_000_000_000
TP = TopicPartition("flights", 3)
NONE, GZIP = 0, 1
BUILDERS = pytest.mark.parametrize("builder", [AiokafkaBuilder, KafkaPythonBuilder], ids=["aiokafka", "kafka-python"])
CODECS = pytest.mark.parametrize("codec", [NONE, GZIP], ids=["plain", "gzip"])


def crc32c(data: bytes) -> int:
    """CRC-32C by the book: reflected polynomial 0x82F63B78, one bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def build(builder, codec, timestamps, *, producer=(-1, -1, -1)):
    """What a client sends: one record per timestamp, with key, value and a header."""
    made = builder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=1 << 20,
    )
    for number, timestamp in enumerate(timestamps):
        assert made.append(number, timestamp, b"key %d" % number, b"value " * 20, [("h", b"x")])
    return bytes(made.build())


def placed(batch: bytes, base: int, epoch: int) -> bytes:
    """The batch as a leader of `epoch` writes it at offset `base`."""
    return struct.pack(">q", base) + batch[8:12] + struct.pack(">i", epoch) + batch[16:]


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def close(disk):
    disk.manager.close()
    disk.manager = None


def test_the_checksum_by_hand_is_that_of_the_standard():
    """RFC 3720, appendix B.4."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43


@CODECS
@BUILDERS
def test_every_file_of_a_closed_log_is_the_one_worked_out_by_hand(disk, builder, codec):
    stamps = [(NOW, NOW + 1), (NOW + 7, NOW + 3), (NOW + 2,), (NOW + 9, NOW + 8, NOW + 5)]
    sent = [
        build(builder, codec, each, producer=(77, 2, sequence))
        for each, sequence in zip(stamps, (0, 2, 4, 5), strict=True)
    ]
    at = [placed(batch, base, epoch) for batch, base, epoch in zip(sent, (0, 2, 4, 5), (1, 1, 4, 4), strict=True)]
    sizes = [len(batch) for batch in sent]
    disk.config = LogConfig(segment_bytes=sum(sizes[:3]), index_interval_bytes=1)
    log = disk.log()
    for batch, epoch in zip(sent, (1, 1, 4, 4), strict=True):
        log.append_as_leader(batch, epoch, NOW)
    log.set_high_watermark(8)
    disk.manager.checkpoint_high_watermarks({TP: 8})
    log.maybe_increment_log_start(2)
    close(disk)

    def snapshot(*batches: tuple[int, int, int, int]) -> bytes:
        """Version 1, checksum, count; then id, epoch, sequence, offset, delta, timestamp, and no transaction."""
        body = struct.pack(">i", len(batches))
        for sequence, offset, delta, timestamp in batches:
            body += struct.pack(">qhiqiqiq", 77, 2, sequence, offset, delta, timestamp, -1, -1)
        return struct.pack(">hI", 1, crc32c(body)) + body

    first_three = [(1, 1, 1, NOW + 1), (3, 3, 1, NOW + 7), (4, 4, 0, NOW + 2)]
    topic_id = urlsafe_b64encode(log.topic_id.bytes).rstrip(b"=")
    assert files(log.directory) == {
        "00000000000000000000.log": at[0] + at[1] + at[2],
        # last offset of a batch, relative, and the byte where it begins; none for the first of a segment
        "00000000000000000000.index": struct.pack(">IIII", 3, sizes[0], 4, sizes[0] + sizes[1]),
        # greatest timestamp so far and the last offset of its batch; none that is not greater
        "00000000000000000000.timeindex": struct.pack(">qI", NOW + 7, 3),
        "00000000000000000005.log": at[3],
        "00000000000000000005.index": b"",
        "00000000000000000005.timeindex": struct.pack(">qI", NOW + 9, 2),
        "00000000000000000005.snapshot": snapshot(*first_three),
        "00000000000000000008.snapshot": snapshot(*first_three, (7, 7, 2, NOW + 9)),
        "leader-epoch-checkpoint": b"0\n2\n1 2\n4 4\n",
        "partition.metadata": b"version: 0\ntopic_id: " + topic_id + b"\n",
    }
    found = files(disk.dirs[0])
    found.pop(".lock")
    assert found == {
        "meta.properties": b"#\nbroker.id=1\nversion=0\ncluster.id=q5uOQi2bQFOuDqYkzT1kXg\n",
        "recovery-point-offset-checkpoint": b"0\n1\nflights 3 8\n",
        "replication-offset-checkpoint": b"0\n1\nflights 3 8\n",
        "cleaner-offset-checkpoint": b"0\n0\n",
        "log-start-offset-checkpoint": b"0\n1\nflights 3 2\n",
        ".kafka_cleanshutdown": b"",
    }
    for batch in at:
        assert struct.unpack_from(">I", batch, 17)[0] == crc32c(batch[21:])


@BUILDERS
def test_log_append_time_changes_timestamp_attribute_and_checksum_and_nothing_else(disk, builder):
    disk.config = LogConfig(message_timestamp_type="LogAppendTime")
    sent = build(builder, NONE, (NOW, NOW + 1))
    log = disk.log()
    log.append_as_leader(sent, 6, NOW + 500)
    checked = struct.pack(">h", 0x08) + sent[23:35] + struct.pack(">q", NOW + 500) + sent[43:]
    expected = placed(sent, 0, 6)[:17] + struct.pack(">I", crc32c(checked)) + checked
    assert (log.directory / "00000000000000000000.log").read_bytes() == expected


@pytest.mark.parametrize("reader", [AiokafkaReader, KafkaPythonReader], ids=["aiokafka", "kafka-python"])
@CODECS
@BUILDERS
def test_what_is_read_from_our_log_is_what_both_libraries_understand(disk, builder, codec, reader):
    log = disk.log()
    for number in range(3):
        log.append_as_leader(build(builder, codec, (NOW + number, NOW + number + 10)), 5, NOW)
    content = bytes(log.read(0, 1 << 20, max_offset=6, min_one_batch=True).records)
    found = []
    for at, header in iter_batches(content):
        batch = reader(bytearray(content[at : at + header.size]))
        assert batch.validate_crc()
        found += [(record.offset, record.timestamp, record.key, record.value) for record in batch]
    assert found == [
        (2 * number + which, NOW + number + 10 * which, b"key %d" % which, b"value " * 20)
        for number in range(3)
        for which in range(2)
    ]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "recovered"])
@pytest.mark.parametrize("with_indexes", [True, False])
@CODECS
@BUILDERS
def test_a_directory_that_others_wrote_is_read_and_goes_on(disk, builder, codec, with_indexes, clean):
    disk.open()
    close(disk)
    root = disk.dirs[0]
    directory = root / str(TP)
    directory.mkdir()
    at = [
        placed(build(builder, codec, (NOW + base, NOW + base + 1), producer=(5, 0, base)), base, epoch)
        for base, epoch in ((0, 0), (2, 0), (4, 3), (6, 3), (8, 3))
    ]
    (directory / "00000000000000000000.log").write_bytes(b"".join(at[:3]))
    (directory / "00000000000000000006.log").write_bytes(b"".join(at[3:]))
    if with_indexes:
        index = struct.pack(">IIII", 3, len(at[0]), 5, len(at[0] + at[1]))
        (directory / "00000000000000000000.index").write_bytes(index)
        times = struct.pack(">qIqI", NOW + 3, 3, NOW + 5, 5)
        (directory / "00000000000000000000.timeindex").write_bytes(times)
        (directory / "00000000000000000006.index").write_bytes(struct.pack(">II", 3, len(at[3])))
        (directory / "00000000000000000006.timeindex").write_bytes(struct.pack(">qI", NOW + 9, 3))
        body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 5, 0, 5, 5, 1, NOW + 5, -1, -1)
        (directory / "00000000000000000006.snapshot").write_bytes(struct.pack(">hI", 1, crc32c(body)) + body)
        (directory / "leader-epoch-checkpoint").write_bytes(b"0\n2\n0 0\n3 4\n")
        (root / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\nflights 3 10\n")
        (root / "replication-offset-checkpoint").write_bytes(b"0\n1\nflights 3 9\n")
    (root / ".kafka_cleanshutdown").unlink()
    if clean:
        (root / ".kafka_cleanshutdown").touch()

    log = disk.open().get(TP)
    assert (log.log_start_offset, log.log_end_offset, log.epoch_entries) == (0, 10, ((0, 0), (3, 4)))
    assert disk.manager.high_watermark_checkpoint(TP) == (9 if with_indexes else 0)
    assert log.segment_base_offsets == (0, 6)
    for offset in range(10):
        content = log.read(offset, 1 << 20, max_offset=10, min_one_batch=True).records
        assert content == b"".join(at[offset // 2 : 3] if offset < 6 else at[offset // 2 :])
        assert at_once(log.offset_for_timestamp(NOW + offset, 10)).offset == offset
    again = log.append_as_leader(build(builder, codec, (NOW + 8, NOW + 9), producer=(5, 0, 8)), 4, NOW)
    assert (again.duplicate, again.base_offset) == (True, 8)
    with pytest.raises(RecordsRejected):
        log.append_as_leader(build(builder, codec, (NOW,), producer=(5, 0, 12)), 4, NOW)
    added = log.append_as_leader(build(builder, codec, (NOW + 10,), producer=(5, 0, 10)), 4, NOW)
    assert (added.base_offset, log.epoch_entries) == (10, ((0, 0), (3, 4), (4, 10)))


@BUILDERS
def test_a_follower_keeps_every_byte_of_what_a_leader_sends(disk, builder):
    at = [placed(build(builder, NONE, (NOW, NOW + 1)), base, epoch) for base, epoch in ((0, 0), (2, 0), (4, 7))]
    log = disk.log()
    log.append_as_follower(b"".join(at))
    assert (log.directory / "00000000000000000000.log").read_bytes() == b"".join(at)
    assert (log.directory / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n7 4\n"
