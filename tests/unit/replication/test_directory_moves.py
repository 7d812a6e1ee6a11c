"""Replicas that move between log directories of their broker while it serves (KIP-113)."""

from __future__ import annotations

import errno
from pathlib import Path

import msgspec
import pytest

from regency.broker_agent.replication.api import Role, StopPartition
from regency.model.ids import LeaderEpoch, TopicPartition
from regency.model.kafka_errors import ErrorCode

TP = TopicPartition("flights", 0)
SLOW = 200
"""Bytes per second, a batch or two."""


def names(path: Path) -> list[str]:
    """What of the partition is in a directory: the kind only where the name has a random part."""
    found = (each.name for each in path.iterdir() if each.name.startswith("flights-"))
    return sorted(name if name == str(TP) else name.rpartition("-")[2] for name in found)


def slow_down(cluster, bytes_per_second: int = SLOW) -> None:
    """Restart broker 1 with a limit."""
    cluster.crash(1, clean=True)
    cluster.settings = msgspec.structs.replace(
        cluster.settings, replica_alter_log_dirs_io_max_bytes_per_second=bytes_per_second
    )
    cluster.restart(1)
    cluster.lead(1, (1, 2), replicas=(1, 2))


def described(broker) -> dict[tuple[Path, bool], tuple[int, int]]:
    """Size and lag by directory and whether it is a future log."""
    answers: list[list] = []
    broker.manager.describe_log_dirs(lambda name: name == TP, answers.append)
    (dirs,) = answers
    return {(Path(each.path), log.is_future): (log.size_bytes, log.offset_lag) for each in dirs for log in each.logs}


@pytest.mark.parametrize("number", (1, 2), ids=("the leader", "a follower"))
def test_a_replica_moves_with_everything_it_knows_and_goes_on(moving, number: int) -> None:
    broker = moving[number]
    source, target = broker.log().home.path, broker.other_dir()
    before = broker.log()
    assert broker.move(target) is ErrorCode.NONE
    moving.advance(100, step=1)

    log = broker.log()
    assert (log.home.path, log.directory) == (target, target / str(TP))
    assert log is broker.logs.get(TP) is not before
    assert broker.values() == ["a", "b", "c"]
    assert (log.high_watermark, log.epoch_entries, log.topic_id) == (3, before.epoch_entries, before.topic_id)
    assert (names(source), names(target)) == (["delete"], [str(TP)])
    moving[1].produce("d")
    moving.advance(1_000)
    assert [moving[each].values() for each in (1, 2)] == [["a", "b", "c", "d"]] * 2
    assert [moving[each].log().high_watermark for each in (1, 2)] == [4, 4]
    assert moving.states[TP].isr == (1, 2)
    moving.advance(130_000, step=10_000)
    assert (names(source), names(target)) == ([], [str(TP)])


def test_the_moved_log_is_found_with_its_high_watermark_after_a_kill(moving) -> None:
    target = moving[1].other_dir()
    moving[1].move(target)
    moving.advance(100, step=1)
    moving.crash(1)
    moving.restart(1)
    assert moving[1].logs.high_watermark_checkpoint(TP) == 3
    moving.lead(1, (1, 2), replicas=(1, 2))
    assert moving[1].log().home.path == target
    assert moving[1].values() == ["a", "b", "c"]


def test_a_producer_is_known_in_the_directory_its_log_was_moved_to(moving, batch) -> None:
    def produce(sequence: int) -> ErrorCode:
        answers: list = []
        records = batch("x", producer=(7, 0, sequence))
        moving[1].manager.append(1, 1000, {TP: records}, lambda answered: answers.append(answered[TP].error))
        return answers[0]

    assert produce(0) is ErrorCode.NONE
    moving[1].move(moving[1].other_dir())
    moving.advance(100, step=1)
    assert (produce(0), moving[1].log().log_end_offset) == (ErrorCode.NONE, 4)
    assert produce(5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(1) is ErrorCode.NONE


def test_a_move_is_throttled_served_meanwhile_and_shown_with_its_lag(moving) -> None:
    slow_down(moving)
    broker = moving[1]
    source, target = broker.log().home.path, broker.other_dir()
    broker.move(target)
    moving.advance(10, step=1)
    size = broker.log().size_bytes
    future = broker.logs.futures.get(TP)
    copied = future.size_bytes
    assert 0 < copied < size
    assert described(broker) == {(source, False): (size, 0), (target, True): (copied, 3 - future.log_end_offset)}
    assert names(target) == ["future"]
    broker.produce("d")
    moving.advance(1_000, step=10)
    assert moving[2].values() == ["a", "b", "c", "d"]
    assert broker.log().home.path == source
    moving.advance(3_000, step=10)
    assert broker.log().home.path == target
    assert list(described(broker)) == [(target, False)]


def test_a_move_goes_on_after_a_restart_and_what_was_truncated_meanwhile_is_not_in_it(moving) -> None:
    slow_down(moving)
    broker = moving[1]
    moving.sever(1, 2)
    for value in ("only", "here", "for ever"):
        broker.produce(value, acks=1)
    broker.move(broker.other_dir())
    moving.advance(1_000, step=10)
    future = broker.logs.futures.get(TP)
    assert 3 < future.log_end_offset < 6
    moving.crash(1)
    moving.lead(2, (2,), replicas=(1, 2))
    moving[2].produce("of the new leader")
    moving.heal()
    moving.restart(1)
    assert broker.logs.futures.get(TP).log_end_offset == future.log_end_offset
    moving.lead(2, (2,), replicas=(1, 2))
    moving.advance(20_000, step=50)
    assert broker.logs.futures.get(TP) is None
    assert broker.log().home.path == future.home.path
    assert broker.values() == moving[2].values() == ["a", "b", "c", "of the new leader"]
    assert broker.log().epoch_entries == ((0, 0), (2, 3))


def test_truncation_and_a_new_leader_in_the_middle_of_a_copy_are_followed(moving) -> None:
    slow_down(moving, 2_000)
    broker = moving[1]
    moving.sever(1, 2)
    for value in ("lost 1", "lost 2"):
        broker.produce(value, acks=1)
    target = broker.other_dir()
    broker.move(target)
    moving.advance(50, step=1)
    assert broker.logs.futures.get(TP).log_end_offset > 3
    moving.decide(2, (2,), replicas=(1, 2))
    moving.tell(2)
    moving[2].produce("kept")
    moving.heal()
    moving.tell(1)
    moving.advance(5_000, step=10)
    assert broker.log().home.path == target
    assert broker.values() == moving[2].values() == ["a", "b", "c", "kept"]
    assert broker.log().epoch_entries == moving[2].log().epoch_entries


def test_a_log_start_that_rises_while_it_is_copied_is_taken_along(moving) -> None:
    slow_down(moving)
    broker = moving[1]
    broker.move(broker.other_dir())
    moving.advance(10, step=1)
    broker.log().maybe_increment_log_start(2)
    moving.advance(5_000, step=10)
    assert broker.logs.futures.get(TP) is None
    assert (broker.log().log_start_offset, broker.values()[-1]) == (2, "c")


def test_altering_back_cancels_and_altering_again_goes_on(moving) -> None:
    slow_down(moving)
    broker = moving[1]
    source, target = broker.log().home.path, broker.other_dir()
    assert broker.move(source) is ErrorCode.NONE
    assert broker.logs.futures.get(TP) is None
    broker.move(target)
    moving.advance(10, step=1)
    future = broker.logs.futures.get(TP)
    assert broker.move(target) is ErrorCode.NONE
    assert broker.logs.futures.get(TP) is future
    assert broker.move(source) is ErrorCode.NONE
    assert broker.logs.futures.get(TP) is None
    assert (names(source), names(target)) == ([str(TP)], ["delete"])
    moving.advance(5_000, step=100)
    assert broker.log().home.path == source


def test_a_deleted_partition_takes_its_copy_along(moving) -> None:
    slow_down(moving)
    broker = moving[1]
    source, target = broker.log().home.path, broker.other_dir()
    broker.move(target)
    moving.advance(10, step=1)
    state = moving.states[TP]
    broker.manager.stop_replicas([StopPartition(TP, state.topic_id, LeaderEpoch(-2), True)])
    moving.advance(1_000)
    assert (names(source), names(target)) == (["delete"], ["delete"])
    assert dict(broker.logs.futures.all()) == {}


def test_a_failing_target_ends_the_move_and_leaves_the_replica_alone(moving, monkeypatch) -> None:
    slow_down(moving)
    broker = moving[1]
    source, target = broker.log().home.path, broker.other_dir()
    broker.move(target)
    moving.advance(10, step=1)
    broker.logs.futures.get(TP).home.fail(OSError(errno.EIO, "Input/output error"))
    moving.advance(3_000, step=100)
    assert (broker.log().home.path, broker.partition().role) == (source, Role.LEADER)
    assert broker.logs.futures.get(TP) is None
    broker.produce("d")
    moving.run()
    assert moving[2].values()[-1] == "d"
    assert broker.move(target) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_failing_source_takes_the_replica_offline_and_the_move_waits(moving) -> None:
    slow_down(moving)
    broker = moving[1]
    source, target = broker.log().home.path, broker.other_dir()
    broker.move(target)
    moving.advance(10, step=1)
    future = broker.logs.futures.get(TP)
    copied = future.log_end_offset
    assert copied > 0
    broker.log().home.fail(OSError(errno.EIO, "Input/output error"))
    moving.advance(3_000, step=100)
    assert broker.partition().role is Role.OFFLINE
    assert (broker.logs.futures.get(TP), future.log_end_offset) == (future, copied)
    assert broker.move(target) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (names(source), names(target)) == ([str(TP)], ["future"])
    moving.crash(1)
    moving.restart(1)
    moving.lead(1, (1,), replicas=(1, 2))
    moving.advance(5_000, step=10)
    assert broker.log().home.path == target
    assert broker.values() == ["a", "b", "c"]


@pytest.mark.parametrize("begins", ("before the swap", "when the old log is renamed"))
def test_a_swap_that_meets_a_shortage_of_descriptors_leaves_the_old_log_its_name_and_happens_later(
    moving, monkeypatch, begins: str
) -> None:
    broker = moving[1]
    source, target = broker.log().home.path, broker.other_dir()
    kind = type(broker.logs._services.disk)

    def short(take):
        def taken(self, path: Path):
            if path == source and (begins == "before the swap" or "delete" in names(source)):
                raise OSError(errno.EMFILE, "Too many open files")
            return take(self, path)

        return taken

    broker.move(target)
    with monkeypatch.context() as patch:
        for method in ("open_directory", "sync_path"):
            patch.setattr(kind, method, short(getattr(kind, method)))
        moving.advance(100, step=1)
        assert broker.log().directory.exists(), "the log is where it does not expect itself"
        assert broker.log().home.path == (source if begins == "before the swap" else target)
    broker.produce("d")
    moving.advance(2_000, step=10)
    assert (broker.log().home.path, names(target), list(broker.dir_failures)) == (target, [str(TP)], [])
    moving.crash(1)
    moving.restart(1)
    moving.lead(1, (1,), replicas=(1, 2))
    moving.advance(1_000)
    assert broker.values() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("step", ("rename", "rename and back"))
def test_a_target_that_fails_at_the_swap_leaves_the_old_log_in_place(moving, monkeypatch, step: str) -> None:
    broker = moving[1]
    source, target = broker.log().home.path, broker.other_dir()
    broker.move(target)
    disk, renamed = broker.logs._services.disk, type(broker.logs._services.disk).rename

    def rename(self, old: Path, new: Path) -> None:
        if new == target / str(TP) or (step == "rename and back" and new == source / str(TP)):
            raise OSError(errno.EIO, "Input/output error")
        renamed(self, old, new)

    with monkeypatch.context() as patch:
        patch.setattr(type(disk), "rename", rename)
        moving.advance(100, step=1)
    failed = [path for path, _ in broker.dir_failures]
    if step == "rename":
        assert failed == [target]
        assert (broker.log().home.path, broker.partition().role) == (source, Role.LEADER)
        assert names(source) == [str(TP)]
        broker.produce("d")
        moving.run()
        assert moving[2].values()[-1] == "d"
    else:
        assert failed == [target, source]
        assert broker.partition().role is Role.OFFLINE
    moving.crash(1)
    moving.restart(1)
    moving.lead(1, (1,), replicas=(1, 2))
    moving.advance(1_000, step=10)
    assert (broker.log().home.path, broker.values()[:3]) == (target, ["a", "b", "c"])


def test_what_cannot_be_moved_is_refused_as_in_kafka(moving, tmp_path) -> None:
    broker = moving[1]
    long = TopicPartition("t" * 240, 0)
    moving.lead(1, (1,), replicas=(1,), partition=long)
    known, unknown = TopicPartition("known", 0), TopicPartition("unknown", 0)
    moving.peers.known.add(known)
    answers = broker.manager.alter_log_dirs(
        {TP: tmp_path / "none", long: broker.other_dir(long), known: broker.dirs[1], unknown: broker.dirs[1]}
    )
    assert answers == {
        TP: ErrorCode.LOG_DIR_NOT_FOUND,
        long: ErrorCode.INVALID_TOPIC_EXCEPTION,
        known: ErrorCode.REPLICA_NOT_AVAILABLE,
        unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_stopped_replica_is_not_moved_as_nobody_would_finish_that(moving) -> None:
    broker = moving[1]
    state, target = moving.states[TP], broker.other_dir()
    moving.peers.known.add(TP)
    broker.manager.stop_replicas([StopPartition(TP, state.topic_id, LeaderEpoch(-2), False)])
    assert broker.move(target) is ErrorCode.REPLICA_NOT_AVAILABLE
    assert dict(broker.logs.futures.all()) == {}


@pytest.mark.parametrize("number", (0, 1))
def test_a_replica_is_made_in_the_directory_it_was_wanted_in_before_it_was_here(moving, number: int) -> None:
    broker, name = moving[1], TopicPartition("later", 0)
    moving.peers.known.add(name)
    assert broker.move(broker.dirs[number], name) is ErrorCode.REPLICA_NOT_AVAILABLE
    moving.lead(1, (1,), replicas=(1,), partition=name)
    assert broker.log(name).home.path == broker.dirs[number]


def test_a_damaged_log_is_not_moved_and_the_move_is_given_up_once(moving, caplog) -> None:
    broker = moving[1]
    source = broker.log().home.path
    segment = broker.log().directory / f"{0:020d}.log"
    content = bytearray(segment.read_bytes())
    content[-1] ^= 0xFF
    segment.write_bytes(content)
    broker.move(broker.other_dir())
    moving.advance(5_000, step=10)
    assert broker.log().home.path == source
    assert caplog.text.count("is not moved any further") == 1
    assert broker.timer.due is None or broker.timer.due > moving.clock.monotonic_ms()


def test_a_future_log_that_has_lost_its_replica_is_set_aside_once_all_replicas_are_named(moving) -> None:
    slow_down(moving)
    broker = moving[1]
    target = broker.other_dir()
    broker.move(target)
    moving.advance(10, step=1)
    source = broker.log().directory
    moving.crash(1, clean=True)
    source.rename(source.parent.parent / "gone")
    moving.restart(1)
    assert broker.logs.get(TP) is None
    broker.manager.first_full_request_done()
    assert (names(target), dict(broker.logs.futures.all())) == (["stray"], {})


def test_several_replicas_move_one_after_the_other(moving) -> None:
    broker = moving[1]
    more = [TopicPartition("flights", number) for number in range(1, 5)]
    for name in more:
        moving.lead(1, (1, 2), replicas=(1, 2), partition=name)
        broker.produce("x", partition=name)
    moving.run()
    for name in (TP, *more):
        broker.move(broker.dirs[1], name)
    moving.advance(1_000, step=1)
    assert {broker.log(name).home.path for name in (TP, *more)} == {broker.dirs[1]}
    moving.advance(130_000, step=10_000)
    assert names(broker.dirs[0]) == []
