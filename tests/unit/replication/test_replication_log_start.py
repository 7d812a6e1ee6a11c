"""A leader whose retention has dropped the epochs of its followers, and followers that end right at its log start."""

from __future__ import annotations

import pytest

from regency.broker_agent.log.partition_log import PartitionLog
from regency.model.ids import Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

TP = TopicPartition("flights", 0)


@pytest.fixture
def restarts(monkeypatch) -> list[int]:
    """Where logs were emptied to begin at."""
    found: list[int] = []
    start_over = PartitionLog.truncate_fully_and_start_at

    def noted(self: PartitionLog, offset: Offset, producers: bytes = b"") -> None:
        found.append(offset)
        start_over(self, offset, producers)

    monkeypatch.setattr(PartitionLog, "truncate_fully_and_start_at", noted)
    return found


def lead_from_two(cluster) -> None:
    """Broker 1 leads in epoch 1, wrote 0 and 1 in epoch 0, begins at 2 and has forgotten epoch 0."""
    cluster.decide(1, (1,))
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    cluster[1].produce("b", acks=1)
    cluster.decide(1, (1,))
    cluster.tell(1)
    cluster[1].produce("c", acks=1)
    cluster[1].log().maybe_increment_log_start(Offset(2))
    assert cluster[1].log().epoch_entries == ((1, 2),)


def told(cluster, offset, *, last_epoch, log_start=0, replica=2, **options):
    """What a fetch in epoch 1 is told: its error or the end of its epoch, else how many bytes."""
    (answer,) = cluster[1].consume(
        offset, replica=replica, epoch=1, last_epoch=last_epoch, log_start=log_start, **options
    )
    if answer.diverging is not None:
        return answer.error, (answer.diverging.leader_epoch, answer.diverging.end_offset), answer.log_start_offset
    return answer.error, len(answer.records) > 0


NOTHING, RECORDS = (ErrorCode.NONE, False), (ErrorCode.NONE, True)
FORGOTTEN = (ErrorCode.NONE, (0, 2), 2)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "log_start", "expected"),
    [
        pytest.param(2, 0, 0, FORGOTTEN, id="ends at our start, with an epoch we forgot"),
        pytest.param(2, 0, 1, FORGOTTEN, id="one record is enough"),
        pytest.param(3, 0, 0, FORGOTTEN, id="ends behind our start"),
        pytest.param(3, 0, 2, FORGOTTEN, id="ends behind our start and begins there"),
        pytest.param(1, 0, 0, (ErrorCode.OFFSET_OUT_OF_RANGE, False), id="ends below our start"),
        pytest.param(2, 1, 0, RECORDS, id="has the epoch that we know at our start"),
        pytest.param(3, 1, 0, NOTHING, id="is up to date"),
        pytest.param(2, 0, 2, RECORDS, id="has nothing below our start"),
        pytest.param(2, -1, 0, RECORDS, id="knows no epoch"),
    ],
)
def test_a_follower_that_cannot_be_compared_is_told_our_log_start(
    cluster, offset, last_epoch, log_start, expected
) -> None:
    lead_from_two(cluster)
    assert told(cluster, offset, last_epoch=last_epoch, log_start=log_start) == expected


def test_a_fetch_that_cannot_be_compared_does_not_count(cluster) -> None:
    lead_from_two(cluster)
    told(cluster, 2, last_epoch=0)
    assert cluster[1].partition().remotes[2].log_end_offset == -1


def test_a_consumer_at_our_log_start_is_told_nothing(cluster) -> None:
    lead_from_two(cluster)
    assert told(cluster, 2, last_epoch=0, replica=-1, log_start=-1) == RECORDS


def test_who_was_compared_before_we_forgot_is_not_suspected_until_it_starts_again(cluster) -> None:
    cluster.decide(1, (1,))
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    cluster.decide(1, (1,))
    cluster.tell(1)
    assert told(cluster, 1, last_epoch=0) == NOTHING
    cluster[1].log().maybe_increment_log_start(Offset(1))
    assert cluster[1].log().epoch_entries == ((1, 1),)
    assert told(cluster, 1, last_epoch=0) == NOTHING
    assert told(cluster, 1, last_epoch=0, replica=3) == (ErrorCode.NONE, (0, 1), 1)
    cluster.crash(2)
    cluster.restart(2)
    assert told(cluster, 1, last_epoch=0) == (ErrorCode.NONE, (0, 1), 1)


def test_records_that_the_leader_never_had_are_gone_though_its_log_starts_right_behind_them(cluster) -> None:
    """2 and 1 wrote different records at 1, and 1's retention took its own before 2 came back."""
    cluster.lead(1)
    cluster[1].produce("a", acks=1)
    cluster.advance(600)
    cluster.sever(2, 1)
    cluster.sever(2, 3)
    cluster.decide(2, (2,))
    cluster.tell(2)
    cluster[2].produce("never had", acks=1)
    cluster.decide(1, (1, 3))
    cluster.tell(1, 3)
    cluster[1].produce("one", acks=1)
    cluster.run()
    cluster[1].produce("two", acks=1)
    cluster.advance(600)
    cluster[1].log().maybe_increment_log_start(Offset(2))
    cluster.heal()
    cluster.tell(2)
    cluster.advance(3_000)
    assert cluster[2].values() == ["two"]
    assert cluster.states[TP].isr == (1, 3, 2)

    cluster.crash(2)  # before it has noted on the disk where the log starts
    cluster.restart(2)
    cluster.lead(2, (2, 3))
    assert cluster[2].values() == ["two"]
    assert cluster[2].consume(1)[0].error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_who_begins_anew_knows_a_repeated_batch_whose_records_have_expired(cluster) -> None:
    """The producer has no answer and goes on asking: a leader that never had the records would write them again."""
    cluster.lead(1)
    cluster.sever(3, 1)
    cluster[1].produce("once", producer=(9, 0, 0))
    cluster.advance(20_000)
    assert cluster.states[TP].isr == (1, 2)
    expire_everything(cluster, 1)
    cluster[1].produce("later")
    cluster.heal()
    cluster.advance(3_000)
    assert (cluster[3].log().log_start_offset, cluster.states[TP].isr) == (1, (1, 2, 3))

    cluster.lead(3)
    (again,) = cluster[3].produce("once", producer=(9, 0, 0), acks=1)
    assert (again.error, again.base_offset) == (ErrorCode.NONE, 0)
    assert cluster[3].values() == ["later"]


def expire_everything(cluster, number) -> None:
    log = cluster[number].log()
    log.maybe_increment_log_start(log.log_end_offset)


def test_followers_that_idle_at_the_leaders_log_start_keep_their_logs_and_their_places(cluster, restarts) -> None:
    cluster.lead(1)
    cluster[1].produce("a", "b")
    cluster.advance(1_000)
    cluster.lead(1)
    expire_everything(cluster, 1)
    cluster.advance(30_000)
    assert [cluster[number].log().log_start_offset for number in (1, 2, 3)] == [2, 2, 2]
    assert [cluster[number].log().high_watermark for number in (1, 2, 3)] == [2, 2, 2]
    cluster.lead(2)
    written = cluster[2].produce("c")
    cluster.advance(1_000)
    assert [result.error for result in written] == [ErrorCode.NONE]
    assert [cluster[number].values() for number in (1, 2, 3)] == [["c"]] * 3
    assert cluster.states[TP].isr == (1, 2, 3)
    assert [cluster[number].isr_store.submitted for number in (1, 2, 3)] == [[], [], []]
    assert restarts == []


def test_a_record_that_comes_when_all_has_just_expired_goes_to_waiting_followers(cluster, restarts) -> None:
    cluster.lead(1)
    cluster[1].produce("a", "b")
    cluster.advance(1_000)
    cluster.lead(1)
    expire_everything(cluster, 1)
    written = cluster[1].produce("c")
    cluster.run()
    assert [result.error for result in written] == [ErrorCode.NONE]
    assert [cluster[number].values()[-1] for number in (1, 2, 3)] == ["c"] * 3
    assert restarts == []


def test_a_member_that_could_not_be_compared_in_time_starts_over_and_stays_in_sync(cluster, restarts) -> None:
    """It loses what its leader has dropped already, and nothing else."""
    cluster.lead(1)
    cluster[1].produce("a", "b")
    cluster.advance(1_000)
    cluster.sever(1, 2)
    cluster.lead(1)
    expire_everything(cluster, 1)
    cluster.advance(2_000)
    cluster.heal()
    cluster.advance(2_000)
    assert restarts == [2]
    written = cluster[1].produce("c")
    cluster.advance(1_000)
    assert [result.error for result in written] == [ErrorCode.NONE]
    assert [cluster[number].values() for number in (1, 2, 3)] == [["c"]] * 3
    assert cluster.states[TP].isr == (1, 2, 3)
    assert cluster[1].isr_store.submitted == []


def test_empty_logs_cost_nothing_when_another_leads_them(cluster, restarts) -> None:
    cluster.lead(1)
    cluster[1].produce("a", "b")
    cluster.advance(1_000)
    for number in (1, 2, 3):
        expire_everything(cluster, number)
    for leader in (2, 3, 1):
        cluster.lead(leader)
        cluster.advance(1_000)
    cluster[1].produce("c")
    cluster.advance(1_000)
    assert [cluster[number].values() for number in (1, 2, 3)] == [["c"]] * 3
    assert restarts == []
