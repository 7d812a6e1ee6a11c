"""The rules of replicas and logs fire on what is planted in brokers with real logs, and on nothing that these do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from judged_brokers import TP, Judged, builders, three_records
from simulation.judging.invariants import InvariantBroken

from regency.broker_agent.replication.api import Role
from regency.broker_agent.replication.followers import Committed, PendingExpand, RemoteReplica
from regency.model.ids import BrokerId, LeaderEpoch, Offset, ZkVersion


@pytest.fixture
def judged(tmp_path: Path) -> Iterator[Judged]:
    yield from three_records(tmp_path)


def cut_behind(judged: Judged, number: int, offset: int) -> None:
    """Truncate a replica's log, as a loss of data would leave it."""
    judged[number].log().truncate_to(offset)


def test_elections_crashes_and_returns_break_nothing(judged: Judged) -> None:
    cluster = judged.cluster
    cluster.crash(1)
    cluster.decide(2, [2, 3])
    cluster.tell()
    for _ in range(5):
        cluster.advance(500)
        judged.look()
    judged.produce("d")
    cluster.restart(1)
    judged.start(1)
    cluster.tell()
    for _ in range(10):
        cluster.advance(1_000)
        judged.look()
    assert set(cluster.states[TP].isr) == {1, 2, 3}
    cluster.lead(1, cluster.states[TP].isr)
    judged.look()
    judged.produce("e")
    judged.look()
    assert cluster[1].values() == list("abcde")


def raise_watermark(judged: Judged) -> None:
    judged[2].log()._high_watermark = 9


def lose_a_tail(judged: Judged) -> None:
    cut_behind(judged, 3, 2)


def lose_more(judged: Judged) -> None:
    """The next leader lacks a record that was committed; nobody promised it."""
    for facts in judged.facts.partitions.values():
        facts.promised.clear()
    lose_and_elect(judged)


def lose_and_elect(judged: Judged) -> None:
    cluster = judged.cluster
    cluster.crash(1)
    cluster.crash(3)
    cut_behind(judged, 2, 2)
    cluster.decide(2, [2])
    cluster.tell()


def diverge(judged: Judged) -> None:
    """A follower gets another record than the leader has, and takes it for committed."""
    judged.cluster.sever(1, 3)
    judged[1].produce("left")
    judged.cluster.run()
    other = judged[3].log()
    other.append_as_leader(builders.make_batch("right"), LeaderEpoch(1), 0)
    judged[1].log()._high_watermark = judged[1].log().log_end_offset
    other._high_watermark = other.log_end_offset


def promise_another(judged: Judged) -> None:
    judged.promise("z", 2)


def lead_twice(judged: Judged) -> None:
    judged.cluster.decide(1)
    judged.cluster.tell(1)
    judged.look()
    judged.cluster.decide(2, epoch=1)
    judged.cluster.tell(2)


def lead_ahead(judged: Judged) -> None:
    judged[2].partition().leader_epoch = LeaderEpoch(7)


def go_back(judged: Judged) -> None:
    judged.cluster.lead(1)
    judged.look()
    judged[2].partition().leader_epoch = LeaderEpoch(0)


def swap_roles(judged: Judged) -> None:
    judged[1].partition().role = Role.FOLLOWER


def remember_followers(judged: Judged) -> None:
    judged.cluster.decide(1)
    remotes = judged[1].partition().remotes.values()
    known = [(replica, replica.log_end_offset, replica.fetch_epoch) for replica in remotes]
    judged.cluster.tell(1)
    for replica, end, epoch in known:
        replica.log_end_offset, replica.fetch_epoch = end, epoch


def append_without_leading(judged: Judged) -> None:
    judged.cluster.sever(1, 3)
    judged[1].produce("left")
    judged[3].log().append_as_leader(builders.make_batch("right"), LeaderEpoch(0), 0)


def damage_a_batch(judged: Judged) -> None:
    judged[1].produce("d")
    path = judged[1].log()._segments.active.log.path
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def mistake_an_epoch(judged: Judged) -> None:
    judged[1].produce("d")
    judged[1].log()._epochs._entries = [(LeaderEpoch(1), Offset(0))]


def forget_the_epoch(judged: Judged) -> None:
    judged.cluster.lead(1)
    judged[1].log()._epochs._entries.pop()


def forget_producers(judged: Judged) -> None:
    batch = builders.make_batch("d", producer=(7, 0, 0))
    judged[1].log().append_as_leader(batch, LeaderEpoch(0), 0)
    judged[1].log()._producers._producers.clear()
    judged.cluster.lead(1)


def advance_alone(judged: Judged) -> None:
    judged.cluster.crash(2)
    judged.cluster.crash(3)
    judged.cluster.decide(1, [1])
    judged.cluster.tell(1)
    judged.look()
    judged[1].log().append_as_leader(builders.make_batch("d"), judged[1].partition().leader_epoch, 0)
    judged[1].log().set_high_watermark(4)


def take_an_older_version(judged: Judged) -> None:
    judged.cluster.lead(1)
    judged.look()
    partition = judged[1].partition()
    partition.zk_version = ZkVersion(partition.zk_version - 1)
    partition.isr = type(partition.isr)(partition.isr.committed, partition.zk_version)


def keep_them_waiting(judged: Judged) -> None:
    judged.cluster.sever(1, 2)
    judged.cluster.sever(1, 3)
    judged[1].produce("d")
    judged.look()
    judged[1].partition().stop()


def forget_who_waits(judged: Judged) -> None:
    """Deleted in the step in which it was stopped, so that nobody sees it stopped."""
    judged.cluster.sever(1, 2)
    judged.cluster.sever(1, 3)
    judged[1].produce("d")
    judged.look()
    partition = judged[1].partition()
    partition.stop()
    judged[1].manager._hosting.forget(partition)


def count_a_stranger(judged: Judged) -> None:
    judged[1].partition().remotes[BrokerId(4)] = RemoteReplica(BrokerId(4))
    judged[1].produce("d")


def leave_the_watermark(judged: Judged, *, after_ms: int = builders.LAG_MS + 1) -> None:
    """A follower is behind, and leaves the ISR after a while; the other one has all there is."""
    judged.cluster.sever(1, 3)
    judged[1].produce("d")
    judged.cluster.run()
    judged.look()
    judged.cluster.clock.advance(after_ms)
    state = judged.cluster.decide(1, [1, 2], epoch=0)
    partition = judged[1].partition()
    partition.isr, partition.zk_version = Committed(state.isr, state.zk_version), state.zk_version


def take_in_who_left(judged: Judged) -> None:
    partition = judged[1].partition()
    partition.remotes[BrokerId(3)].broker_epoch -= 1
    partition.isr = PendingExpand((BrokerId(1), BrokerId(2)), (BrokerId(3),), partition.zk_version)


def keep_an_incomplete_member(judged: Judged) -> None:
    judged.cluster.crash(1)
    cut_behind(judged, 3, 2)
    judged.cluster.decide(2, [2, 3])


PLANTED: list[tuple[str, Callable[[Judged], None]]] = [
    ("watermark-holds", lambda judged: judged[1].log().set_high_watermark(2)),
    ("watermark-within-log", raise_watermark),
    ("watermark-everywhere", lose_a_tail),
    ("acknowledged-kept", lose_and_elect),
    ("committed-kept", lose_more),
    ("logs-agree", diverge),
    ("acknowledged-committed", promise_another),
    ("one-believer-per-epoch", lead_twice),
    ("epoch-not-ahead", lead_ahead),
    ("epoch-holds", go_back),
    ("role-by-epoch", swap_roles),
    ("epoch-resets-knowledge", remember_followers),
    ("log-matching", append_without_leading),
    ("batches-sound", damage_a_batch),
    ("epochs-fit", mistake_an_epoch),
    ("epoch-noted", forget_the_epoch),
    ("producers-fit", forget_producers),
    ("watermark-needs-min-insync", advance_alone),
    ("version-holds", take_an_older_version),
    ("waiters-told", keep_them_waiting),
    ("waiters-told", forget_who_waits),
    ("followers-assigned", count_a_stranger),
    ("watermark-advances", leave_the_watermark),
    ("isr-eligible", take_in_who_left),
    ("isr-complete", keep_an_incomplete_member),
]


@pytest.mark.parametrize(("name", "plant"), PLANTED)
def test_what_must_not_be_in_memory_or_logs_is_found(
    judged: Judged, name: str, plant: Callable[[Judged], None]
) -> None:
    plant(judged)
    with pytest.raises(InvariantBroken) as found:
        judged.look()
    assert found.value.name == name


@pytest.mark.parametrize("plant", [lose_a_tail, lose_and_elect, lose_more, diverge, promise_another])
def test_a_loss_that_is_excused_is_none(judged: Judged, plant: Callable[[Judged], None]) -> None:
    judged.facts.lossy_crash()
    plant(judged)
    judged.look()


@pytest.mark.parametrize(
    ("askable", "silent", "excused"),
    [("both", "", False), ("both", "other", True), ("both", "leader", True), ("leader", "", True), ("", "", False)],
)
@pytest.mark.parametrize(("leader", "other"), [(2, 3), (3, 2)])
def test_a_leader_lacks_nothing_that_one_had_who_could_be_asked(
    judged: Judged, leader: int, other: int, askable: str, silent: str, excused: bool
) -> None:
    cluster = judged.cluster
    cluster.crash(1)
    cut_behind(judged, leader, 2)
    judged.facts.lossy_crash(BrokerId(leader))
    cluster.decide(leader, [leader])
    could_be = {"both": frozenset({BrokerId(2), BrokerId(3)}), "leader": frozenset({BrokerId(leader)}), "": None}
    judged.facts.of(TP).askable = could_be[askable]
    if silent:
        judged.facts.left_unanswered(BrokerId(leader if silent == "leader" else other), 0)
    cluster.sever(2, 3)
    cluster.tell()
    if excused:
        judged.look()
        assert judged.facts.excused(TP)
    else:
        with pytest.raises(InvariantBroken, match="acknowledged-kept"):
            judged.look()


def test_a_replica_that_lost_its_tail_counts_again_once_it_has_come_back(judged: Judged) -> None:
    judged.facts.lossy_crash(BrokerId(3))
    lose_a_tail(judged)
    judged.look()
    judged.cluster.decide(1, [1, 2])
    judged.look()
    judged.facts.registered(BrokerId(3))
    judged.cluster.tell()
    judged.cluster.advance(1_000)
    assert 3 in judged.cluster.states[TP].isr
    judged.look()
    lose_a_tail(judged)
    with pytest.raises(InvariantBroken, match="watermark-everywhere"):
        judged.look()
