"""Brokers with real logs replicate, change leaders and keep what they acknowledged."""

from __future__ import annotations

import pytest

from regency.model.ids import BrokerId, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

TP = TopicPartition("flights", 0)


def write(broker, epochs) -> None:
    """Fill a leader's log with one record per epoch, led by that broker alone."""
    cluster = broker.cluster
    for offset, epoch in enumerate(epochs):
        if TP not in broker.manager.partitions or broker.partition().leader_epoch < epoch:
            cluster.decide(broker.id, (broker.id,), replicas=(broker.id,), epoch=epoch)
            cluster.tell(broker.id)
        broker.produce(f"{epoch}@{offset} of {broker.id}", acks=1)


def logs(cluster, *numbers) -> list[list[str]]:
    return [cluster[number].values() for number in numbers]


def test_followers_copy_the_leader_and_learn_its_high_watermark_with_the_next_fetch(cluster) -> None:
    cluster.lead(1)
    produced = cluster[1].produce("a", "b")
    assert produced == []
    cluster.run()
    assert [result.error for result in produced] == [ErrorCode.NONE]
    assert cluster[2].values() == cluster[3].values() == ["a", "b"]
    assert cluster[1].log().high_watermark == 2
    assert cluster[2].log().high_watermark == 0
    cluster.advance(600)
    assert [cluster[number].log().high_watermark for number in (1, 2, 3)] == [2, 2, 2]


def test_an_idle_cluster_only_long_polls(cluster) -> None:
    cluster.lead(1)
    cluster.advance(1_000)
    before = cluster[2].links[0].round
    cluster.advance(5_000)
    assert cluster[2].links[0].round - before == 10


@pytest.mark.parametrize(
    ("leader", "follower", "kept"),
    [
        pytest.param((1, 1, 1), (1,), 1, id="A"),
        pytest.param((1, 2, 2), (1,), 1, id="B"),
        pytest.param((1, 1), (1, 1, 1, 1), 2, id="C"),
        pytest.param((1, 1), (1, 1, 2, 2), 2, id="D"),
        pytest.param((1, 1, 3), (1, 1, 2), 2, id="E"),
        pytest.param((1, 1), (1, 2), 1, id="F"),
        pytest.param((1, 3, 5), (0, 2, 4), 0, id="G"),
        pytest.param((1, 1, 2, 4, 6, 6), (1, 1, 3, 3, 5), 2, id="several rounds"),
        pytest.param((), (1, 2), 0, id="empty leader"),
    ],
)
def test_a_follower_truncates_to_where_the_logs_agree_and_copies_the_rest(make_cluster, leader, follower, kept) -> None:
    """Same epoch at the same offset means the same record, as in a real history: what is common is copied first."""
    cluster = make_cluster(brokers=2)
    common = 0
    while common < min(len(leader), len(follower)) and leader[common] == follower[common]:
        common += 1
    assert common == kept
    write(cluster[1], leader[:common])
    if common:
        cluster.decide(1, (1,), replicas=(1, 2), epoch=cluster.states[TP].leader_epoch)
        cluster[2].apply(cluster.states[TP])
        cluster[1].apply(cluster.states[TP])
        cluster.run()
        cluster.sever(1, 2)
        assert len(set(map(tuple, logs(cluster, 1, 2)))) == 1
    shared = cluster.states.get(TP)
    go_on(cluster[2], follower, common)
    if shared is not None:
        cluster.states[TP] = shared
    go_on(cluster[1], leader, common)
    cluster.heal()
    cluster.decide(1, (1,), replicas=(1, 2), epoch=9)
    cluster.tell()
    cluster.advance(3_000)
    mine, other = logs(cluster, 1, 2)
    assert mine == other
    assert len(mine) == len(leader)
    assert cluster[2].log().high_watermark == cluster[2].log().log_end_offset == len(leader)
    assert cluster[2].log().epoch_entries == cluster[1].log().epoch_entries[:-1]
    assert cluster.states[TP].isr == (1, 2)


def go_on(broker, epochs, begin) -> None:
    """Add records of later epochs, or of the same one, as a leader that nobody follows."""
    cluster = broker.cluster
    for offset in range(begin, len(epochs)):
        epoch = epochs[offset]
        hosted = TP in broker.manager.partitions
        if not hosted or not broker.partition().is_leader or broker.partition().leader_epoch != epoch:
            held = broker.partition().leader_epoch if hosted else -1
            if epoch == held:
                broker.log().append_as_leader(_one(f"{epoch}@{offset} of {broker.id}"), epoch, 0)
                continue
            cluster.decide(broker.id, (broker.id,), replicas=(broker.id,), epoch=epoch)
            cluster.tell(broker.id)
        broker.produce(f"{epoch}@{offset} of {broker.id}", acks=1)


def _one(value):
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    builder.append(0, timestamp=1_000, key=None, value=value.encode(), headers=[])
    return bytes(builder.build())


def test_a_follower_that_crashed_before_it_learned_the_high_watermark_keeps_what_was_acknowledged(cluster) -> None:
    """KIP-101, first case: never truncate to the high watermark."""
    cluster.lead(1, (1, 2), replicas=(1, 2))
    produced = cluster[1].produce("acknowledged")
    cluster.run()
    assert [result.error for result in produced] == [ErrorCode.NONE]
    cluster.crash(2)
    assert cluster.states[TP].isr == (1, 2)
    cluster.restart(2)
    cluster.sever(1, 2)
    cluster.decide(1, (1, 2), replicas=(1, 2))
    cluster.tell(2)
    assert (cluster[2].log().high_watermark, cluster[2].log().log_end_offset) == (0, 1)
    cluster.decide(2, (2,), replicas=(1, 2))
    cluster.tell()
    cluster.heal()
    cluster.advance(3_000)
    assert logs(cluster, 1, 2) == [["acknowledged"], ["acknowledged"]]


def test_two_leaders_that_wrote_the_same_offset_agree_afterwards(cluster) -> None:
    """KIP-101, second case: epochs tell records apart, offsets do not."""
    cluster.lead(1, (1, 2), replicas=(1, 2))
    cluster.sever(1, 2)
    cluster[1].produce("unclean", acks=1)
    cluster.crash(1)
    cluster.decide(2, (2,), replicas=(1, 2))
    cluster.tell()
    cluster[2].produce("kept")
    cluster.restart(1)
    cluster.heal()
    cluster.decide(2, (2,), replicas=(1, 2))
    cluster.tell()
    cluster.advance(2_000)
    assert logs(cluster, 1, 2) == [["kept"], ["kept"]]


def test_fast_failovers_leave_no_record_of_an_epoch_the_leader_never_had(cluster) -> None:
    """KIP-279: 1 leads, 2 leads and writes alone, 1 leads again before 2 is told."""
    cluster.lead(1)
    cluster[1].produce("a")
    cluster.run()
    cluster.sever(2, 1)
    cluster.sever(2, 3)
    cluster.decide(2, (2,))
    cluster.tell(2)
    cluster[2].produce("two", acks=1)
    cluster.decide(1, (1, 3))
    cluster.tell(1, 3)
    cluster.run()
    cluster[1].produce("one", acks=1)
    cluster.run()
    cluster.heal()
    cluster.tell(2)
    cluster.advance(3_000)
    assert logs(cluster, 1, 2, 3) == [["a", "one"]] * 3


def test_a_follower_ahead_of_the_controllers_word_waits_for_its_leader_to_hear_it(cluster) -> None:
    cluster.lead(1)
    cluster.decide(2)
    cluster.tell(3)
    cluster.run()
    assert cluster[3].fetchers.is_following(TP)
    cluster.tell(2, 1)
    cluster[2].produce("a", acks=1)
    cluster.advance(1_500)
    assert logs(cluster, 1, 2, 3) == [["a"]] * 3


def test_a_follower_of_a_deposed_leader_is_fenced_and_copies_nothing(cluster) -> None:
    cluster.lead(1)
    cluster.decide(1)
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    cluster.advance(1_000)
    assert logs(cluster, 2, 3) == [[], []]
    assert list(cluster[2].fetchers.failed) == [TP]
    cluster.tell(2, 3)
    cluster.run()
    assert logs(cluster, 2, 3) == [["a"], ["a"]]


def test_a_follower_behind_the_leaders_start_begins_there(cluster) -> None:
    cluster.lead(1)
    cluster.sever(1, 2)
    for number in range(5):
        cluster[1].produce(f"v{number}", acks=1)
    cluster.advance(30_000)
    assert cluster.states[TP].isr == (1, 3)
    cluster[1].log().maybe_increment_log_start(Offset(3))
    cluster.heal()
    cluster.advance(3_000)
    assert cluster[2].log().log_start_offset == 3
    assert cluster[2].values() == ["v3", "v4"]
    assert cluster.states[TP].isr == (1, 3, 2)


def test_a_follower_takes_over_a_raised_log_start(cluster) -> None:
    cluster.lead(1)
    cluster[1].produce("a", acks=1)
    cluster[1].produce("b", acks=1)
    cluster.advance(600)
    cluster[1].log().maybe_increment_log_start(Offset(1))
    cluster.advance(1_000)
    assert [cluster[number].log().log_start_offset for number in (1, 2, 3)] == [1, 1, 1]


def test_a_leader_that_lost_its_log_makes_followers_start_over(cluster) -> None:
    """An unclean election; the empty leader's word wins."""
    cluster.lead(1)
    cluster[1].produce("a", acks=1)
    cluster.run()
    cluster[1].manager.stop_replicas([_delete(cluster)])
    cluster.lead(1, is_new=True)
    cluster[1].produce("b", acks=1)
    cluster.advance(2_000)
    assert logs(cluster, 1, 2, 3) == [["b"]] * 3


def _delete(cluster):
    from regency.broker_agent.replication.api import StopPartition

    state = cluster.states[TP]
    return StopPartition(TP, state.topic_id, state.leader_epoch, True)


def test_one_bad_partition_does_not_stop_the_others(cluster, monkeypatch) -> None:
    other = TopicPartition("flights", 1)
    cluster.lead(1)
    cluster.lead(1, partition=other)

    def fail(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cluster[2].log(), "append_as_follower", fail)
    cluster[1].produce("a", acks=1)
    cluster[1].produce("b", acks=1, partition=other)
    cluster.run()
    assert cluster[2].values(other) == ["b"]
    assert list(cluster[2].fetchers.failed) == [TP]


def test_a_leader_that_comes_back_elsewhere_is_followed_at_its_new_address(cluster) -> None:
    cluster.lead(1)
    cluster.crash(1)
    cluster.advance(500)
    cluster.restart(1)
    cluster.lead(1)
    cluster[1].produce("a", acks=1)
    cluster.run()
    assert logs(cluster, 2, 3) == [["a"], ["a"]]
    assert {link.address.broker_epoch for link in cluster[2].links if not link.closed} == {cluster[1].epoch}


def test_an_unreachable_leader_is_tried_again_after_the_backoff(cluster) -> None:
    cluster.lead(1)
    cluster.sever(1, 2)
    cluster.run()
    rounds = cluster[2].links[0].round
    cluster.advance(10_000)
    assert 9 <= cluster[2].links[0].round - rounds <= 11
    cluster.heal()
    cluster[1].produce("a", acks=1)
    cluster.advance(1_100)
    assert cluster[2].values() == ["a"]


def test_everything_stops_and_starts_again_and_nothing_is_lost(cluster) -> None:
    cluster.lead(1)
    for broker in cluster.brokers.values():
        broker.manager.first_full_request_done()
    for number in range(10):
        cluster[1].produce(f"v{number}")
        cluster.run()
    for number in (1, 2, 3):
        cluster.crash(number, clean=number != 2)
    for number in (1, 2, 3):
        cluster.restart(number)
    cluster.lead(2)
    cluster.advance(2_000)
    assert logs(cluster, 1, 2, 3) == [[f"v{number}" for number in range(10)]] * 3
    assert cluster[2].latest().offset == 10


def test_consumers_see_the_same_records_before_and_after_a_failover(cluster) -> None:
    cluster.lead(1)
    cluster[1].produce("a", "b")
    cluster.advance(600)
    seen = bytes(cluster[1].consume(0)[0].records)
    cluster.crash(1)
    cluster.lead(2, (2, 3))
    cluster.advance(600)
    assert bytes(cluster[2].consume(0)[0].records) == seen


def test_moving_a_partition_to_new_brokers_copies_it_and_lets_them_join(make_cluster) -> None:
    cluster = make_cluster(brokers=4)
    cluster.lead(1, (1, 2), replicas=(1, 2))
    cluster[1].produce("a")
    cluster.run()
    cluster.decide(1, (1, 2), replicas=(1, 2, 3, 4))
    cluster.tell()
    cluster.advance(1_000)
    assert cluster.states[TP].isr == (1, 2, 3, 4)
    cluster.decide(3, (3, 4), replicas=(3, 4))
    for number in (3, 4):
        cluster.tell(number)
    cluster.advance(1_000)
    assert cluster[4].values() == ["a"]
    refused = cluster[3].consume(0, replica=BrokerId(1), epoch=cluster.states[TP].leader_epoch)
    assert refused[0].error is ErrorCode.UNKNOWN_LEADER_EPOCH
