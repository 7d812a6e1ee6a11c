"""Bad luck on real files with three replicas: tails lost with the power, logs that went on alone, clocks set back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from regency.kafka.record_batch import iter_batches
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

TP = TopicPartition("flights", 0)
DAY_MS = 86_400_000


def lose_tail(broker, batches: int, *, torn: int = 0) -> None:
    """What a power cut takes of the only segment of a broker that is down: its last batches, and a part of one more."""
    directory = broker.dir / str(TP)
    path = directory / f"{0:020d}.log"
    content = path.read_bytes()
    starts = [at for at, _ in iter_batches(content)]
    kept = starts[-batches] - torn
    path.write_bytes(content[:kept])
    for name in (f"{0:020d}.index", f"{0:020d}.timeindex"):
        (directory / name).write_bytes(b"")


def set_wall(cluster, wall_ms: int) -> None:
    """Somebody sets the clock; the time that has passed is another matter."""
    cluster.clock._wall_ms = wall_ms


def logs(cluster, *numbers):
    """Every record of each log, in order."""
    return [list(values(cluster[number])) for number in numbers]


def values(broker):
    log = broker.log()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20, max_offset=log.log_end_offset, min_one_batch=True).records
        offset = [header.next_offset for _, header in iter_batches(read)][-1]
        yield from values_in(read)


def values_in(records):
    for at, header in iter_batches(records):
        batch = DefaultRecordBatch(bytearray(records[at : at + header.size]))
        assert batch.validate_crc()
        yield from (record.value.decode() for record in batch)


def written(cluster, count: int = 6):
    """Broker 1 leads, everything is acknowledged and on all three."""
    cluster.lead(1)
    for number in range(count):
        result = cluster[1].produce(f"r{number}")
        cluster.run()
        assert result[0].error is ErrorCode.NONE
    return [f"r{number}" for number in range(count)]


@pytest.mark.parametrize("torn", [0, 7])
def test_a_follower_that_lost_its_unsynced_tail_copies_it_again(cluster, torn) -> None:
    acknowledged = written(cluster)
    cluster.crash(3)
    lose_tail(cluster[3], 3, torn=torn)
    cluster.restart(3)
    cluster.decide(1, (1, 2))
    cluster.tell()
    cluster.advance(5_000)
    assert logs(cluster, 1, 2, 3) == [acknowledged] * 3
    assert cluster.states[TP].isr == (1, 2, 3)
    assert cluster[1].log().high_watermark == 6


@pytest.mark.parametrize("torn", [0, 7])
def test_a_leader_that_lost_its_unsynced_tail_follows_whoever_has_it(cluster, torn) -> None:
    acknowledged = written(cluster)
    cluster.crash(1)
    lose_tail(cluster[1], 3, torn=torn)
    cluster.decide(2, (2, 3))
    cluster.tell(2, 3)
    cluster.run()
    cluster[2].produce("later")
    cluster.run()
    cluster.restart(1)
    cluster.decide(2, (2, 3))
    cluster.tell()
    cluster.advance(5_000)
    assert logs(cluster, 1, 2, 3) == [[*acknowledged, "later"]] * 3
    assert sorted(cluster.states[TP].isr) == [1, 2, 3]


def test_no_high_watermark_counts_what_a_follower_lost(cluster) -> None:
    """It came back so fast that it never left the ISR: its end is unknown until it has fetched."""
    written(cluster)
    cluster.sever(1, 2)
    result = cluster[1].produce("not on 2")
    cluster.run()
    cluster.crash(3)
    lose_tail(cluster[3], 4)
    cluster.restart(3)
    cluster.decide(1, (1, 2, 3))
    cluster.tell(1, 3)
    cluster.run()
    assert result == []
    cluster.heal()
    cluster.tell(2)
    cluster.advance(5_000)
    assert [each.error for each in result] == [ErrorCode.NONE]
    assert logs(cluster, 1, 2, 3) == [[f"r{number}" for number in range(6)] + ["not on 2"]] * 3


@pytest.mark.parametrize("alone", [1, 4])
def test_a_follower_returns_with_a_longer_log(cluster, alone) -> None:
    acknowledged = written(cluster)
    cluster.sever(1, 2)
    cluster.sever(1, 3)
    for number in range(alone):
        cluster[1].produce(f"alone {number}", acks=1)
    cluster.crash(1)
    cluster.decide(2, (2, 3))
    cluster.tell(2, 3)
    cluster.heal()
    cluster.run()
    cluster.restart(1)
    assert cluster[1].logs.get(TP).log_end_offset == 6 + alone
    cluster.decide(2, (2, 3))
    cluster.tell()
    cluster.advance(5_000)
    assert logs(cluster, 1, 2, 3) == [acknowledged] * 3


def test_a_follower_returns_with_a_diverging_log_that_was_synced(cluster) -> None:
    acknowledged = written(cluster)
    cluster.sever(1, 2)
    cluster.sever(1, 3)
    for number in range(3):
        cluster[1].produce(f"alone {number}", acks=1)
    cluster.crash(1, clean=True)
    cluster.decide(2, (2, 3))
    cluster.tell(2, 3)
    cluster.heal()
    for number in range(5):
        cluster[2].produce(f"kept {number}")
        cluster.run()
    cluster.restart(1)
    cluster.decide(2, (2, 3))
    cluster.tell()
    cluster.advance(5_000)
    assert logs(cluster, 1, 2, 3) == [acknowledged + [f"kept {number}" for number in range(5)]] * 3


def test_two_changes_of_the_leader_before_anybody_fetched(cluster) -> None:
    """1, then 2, then 3 lead; each wrote alone what the others never saw."""
    acknowledged = written(cluster)
    for leader in (1, 2, 3):
        for other in {1, 2, 3} - {leader}:
            cluster.sever(leader, other)
    cluster[1].produce("only on 1", acks=1)
    cluster.decide(2, (2, 3))
    cluster.tell(2)
    cluster[2].produce("only on 2", acks=1)
    cluster.decide(3, (3,))
    cluster.tell(3)
    cluster[3].produce("kept")
    cluster.heal()
    cluster.tell()
    cluster.advance(5_000)
    assert logs(cluster, 1, 2, 3) == [[*acknowledged, "kept"]] * 3


@pytest.mark.parametrize("step_ms", [1, 5_000, 400 * DAY_MS])
def test_a_clock_that_steps_back_moves_no_offset_and_no_high_watermark_back(make_cluster, step_ms) -> None:
    cluster = make_cluster(message_timestamp_type="LogAppendTime", segment_bytes=400, index_interval_bytes=1)
    cluster.lead(1)
    before = cluster.clock.wall_ms()
    for number in range(12):
        if number == 6:
            set_wall(cluster, before - step_ms)
        result = cluster[1].produce(f"r{number}")
        cluster.run()
        assert (result[0].error, result[0].base_offset) == (ErrorCode.NONE, number)
        assert cluster[1].log().high_watermark == number + 1
    cluster.advance(3_000)
    assert logs(cluster, 1, 2, 3) == [[f"r{number}" for number in range(12)]] * 3
    assert cluster.states[TP].isr == (1, 2, 3)
    assert cluster[1].latest(timestamp=before - step_ms).offset in (0, 6)
    assert cluster[1].latest(timestamp=before).offset == 0
    for number in (1, 2, 3):
        cluster.crash(number)
    for number in (1, 2, 3):
        cluster.restart(number)
    cluster.lead(2)
    cluster.advance(3_000)
    assert logs(cluster, 1, 2, 3) == [[f"r{number}" for number in range(12)]] * 3


def test_a_clock_that_steps_back_lets_nothing_expire_and_one_that_is_right_again_does(make_cluster) -> None:
    cluster = make_cluster(
        message_timestamp_type="LogAppendTime", segment_bytes=400, index_interval_bytes=1, retention_ms=DAY_MS
    )
    cluster.lead(1)
    right = cluster.clock.wall_ms()
    set_wall(cluster, right - 400 * DAY_MS)
    for number in range(12):
        cluster[1].produce(f"r{number}")
        cluster.run()
    log = cluster[1].log()
    assert log.delete_old_segments(cluster.clock.wall_ms()) == 0
    set_wall(cluster, right)
    cluster[1].produce("now")
    cluster.run()
    assert log.delete_old_segments(cluster.clock.wall_ms()) > 0
    assert cluster[1].consume(12)[0].error is ErrorCode.NONE


def take_away(path: Path) -> None:
    shutil.rmtree(path)


def put_another_in_its_place(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def write_protect(path: Path) -> None:
    """As a kernel does that remounts a file system read-only; root may write whatever the mode is."""
    checkpoint = path / "replication-offset-checkpoint"
    checkpoint.unlink()
    checkpoint.mkdir()
    (checkpoint / "in-the-way").touch()


@pytest.mark.parametrize("harm", [take_away, put_another_in_its_place, write_protect])
def test_a_broker_with_nothing_to_do_finds_out_within_seconds_that_its_directory_is_lost(
    cluster, harm: Callable[[Path], None]
) -> None:
    written(cluster)
    broker = cluster[1]
    broker.manager.first_full_request_done()
    cluster.advance(11_000)
    assert broker.dir_failures == []
    harm(broker.dir)
    cluster.advance(5_000)
    assert [path for path, _ in broker.dir_failures] == [broker.dir]
    assert broker.produce("late")[0].error is ErrorCode.KAFKA_STORAGE_ERROR
