"""Where a log begins is looked at: records may only be gone by the rules, whoever would not miss them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from judged_brokers import Judged, builders, three_records
from simulation.judging.invariants import InvariantBroken
from simulation.judging.judges import Judges
from simulation.judging.zookeeper_rules import TopicRecord
from simulation.kernel.scheduler import Scheduler
from simulation.shape import shape_of
from simulation.world import World

from regency.judge.operations import FinalRead, LogStartMoved
from regency.model.ids import BrokerId, Offset, TopicId

HOUR_MS = 3_600_000


@pytest.fixture
def judged(tmp_path: Path) -> Iterator[Judged]:
    yield from three_records(tmp_path)


def keep_for_an_hour(judged: Judged, number: int) -> None:
    """The records of a log expire in an hour."""
    now_ms = judged.cluster.clock.wall_ms()
    log = judged[number].log()
    log.config = msgspec.structs.replace(log.config, retention_ms=now_ms - judged.cluster.record_timestamp + HOUR_MS)


def expire_by_another_clock(judged: Judged) -> None:
    keep_for_an_hour(judged, 1)
    list(judged[1].logs.run_retention(judged.cluster.clock.wall_ms() + HOUR_MS + 1))


def expire_what_is_not_committed(judged: Judged) -> None:
    keep_for_an_hour(judged, 1)
    judged.cluster.sever(1, 2)
    judged.cluster.sever(1, 3)
    judged[1].produce("d")
    judged.look()
    log = judged[1].log()
    log._high_watermark = log.log_end_offset
    judged.cluster.clock.advance(2 * HOUR_MS)
    list(judged[1].logs.run_retention(judged.cluster.clock.wall_ms()))


def begin_where_nobody_has_begun(judged: Judged) -> None:
    judged[3].log().maybe_increment_log_start(Offset(2))


def begin_later_after_a_restart(judged: Judged) -> None:
    judged.cluster.crash(3)
    judged.look()
    judged.cluster.restart(3)
    judged.start(3)
    judged.cluster.tell(3)
    log = judged[3].log()
    log._log_start = log._high_watermark = Offset(2)


@pytest.mark.parametrize(
    "plant",
    [expire_by_another_clock, expire_what_is_not_committed, begin_where_nobody_has_begun, begin_later_after_a_restart],
)
def test_records_that_are_gone_for_no_reason_are_missed(judged: Judged, plant: Callable[[Judged], None]) -> None:
    plant(judged)
    with pytest.raises(InvariantBroken) as found:
        judged.look()
    assert found.value.name == "retention-by-rule"


def test_records_may_expire_at_their_time_and_followers_begin_where_their_leader_does(judged: Judged) -> None:
    keep_for_an_hour(judged, 1)
    retention = judged.rules.retention
    clock, log = judged.cluster.clock, judged[1].log()
    assert retention.overdue(BrokerId(1), log, clock.wall_ms()) is None
    assert retention.overdue(BrokerId(1), log, clock.wall_ms() + HOUR_MS + 1) is not None
    clock.advance(HOUR_MS + 1)
    list(judged[1].logs.run_retention(clock.wall_ms()))
    judged.look()
    assert log.log_start_offset == 3
    judged.produce("d")
    judged.look()
    assert judged[2].log().log_start_offset == 3
    judged.cluster.crash(2)
    judged.look()
    judged.cluster.restart(2)
    judged.start(2)
    judged.cluster.tell(2)
    judged.look()
    assert retention.overdue(BrokerId(1), log, clock.wall_ms() + HOUR_MS) is not None


@pytest.mark.parametrize("expired", [True, False])
def test_a_cut_that_changed_nothing_hides_no_retention(judged: Judged, expired: bool) -> None:
    keep_for_an_hour(judged, 1)
    log = judged[1].log()
    log._flusher.ends_at(log.log_end_offset)  # the first step of a cut, and all of one that lacked a descriptor
    if expired:
        judged.cluster.clock.advance(HOUR_MS + 1)
        list(judged[1].logs.run_retention(judged.cluster.clock.wall_ms()))
        judged.look()
        assert log.log_start_offset == 3
    else:
        expire_by_another_clock(judged)
        with pytest.raises(InvariantBroken, match=r"retention-by-rule: .* drops records"):
            judged.look()


def test_a_producer_whose_records_are_gone_is_remembered(judged: Judged) -> None:
    log = judged[1].log()
    log.append_as_leader(builders.make_batch("d", producer=(7, 0, 0)), judged[1].partition().leader_epoch, 0)
    judged.cluster.run()
    judged.look()
    log.maybe_increment_log_start(Offset(2))
    del log._producers._producers[7]
    with pytest.raises(InvariantBroken, match=r"producers-kept: .* forgets producers \[7\]"):
        judged.look()


def test_a_final_read_begins_where_a_leader_s_log_has_begun() -> None:
    judges = Judges(World(Scheduler(1), shape_of("quick", 1)))
    topic_id = TopicId(UUID(int=7))
    judges._zookeeper.topics["blue"] = TopicRecord(1)
    judges._zookeeper.topics["blue"].topic_id = topic_id
    judges.facts.log_starts.append(LogStartMoved("blue", 0, 1_000, 5, str(topic_id)))
    judges.facts.log_starts.append(LogStartMoved("blue", 0, 1_000, 9, str(TopicId(UUID(int=6)))))
    judges.check_reads([FinalRead("blue", 0, 5, 8, (), 2_000), FinalRead("blue", 1, 0, 8, (), 2_000)])
    for late in (FinalRead("blue", 0, 6, 8, (), 2_000), FinalRead("blue", 1, 5, 8, (), 2_000)):
        with pytest.raises(InvariantBroken, match="retention-by-rule"):
            judges.check_reads([late])
