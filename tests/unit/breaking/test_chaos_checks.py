"""The checks of the chaos suite see what they are for: a check that never fails proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from breaking.faults import FaultKind, plan_rounds
from breaking.replicas import compare_replicas
from breaking.tail import first_difference
from breaking.watch import Invariants

from regency.cluster.health import ClusterSnapshot, PartitionView
from regency.kafka.record_batch import compute_crc, read_header, stamp
from regency.model.facts import LeaderAndIsr, ReplicaAssignment
from regency.model.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition

SERVER_FAULTS = (FaultKind.PAUSE_ZOOKEEPER, FaultKind.RESTART_ZOOKEEPER, FaultKind.KILL_ZOOKEEPER)
HEADER = bytes.fromhex("00" * 11 + "31" + "00000000" + "02" + "00000000" + "00" * 40)


def snapshot(leader: int, isr: tuple[int, ...], *, epoch: int = 3, controller_epoch: int = 1) -> ClusterSnapshot:
    leadership = LeaderAndIsr(BrokerId(leader), LeaderEpoch(epoch), tuple(BrokerId(member) for member in isr))
    view = PartitionView(ReplicaAssignment((BrokerId(1), BrokerId(2), BrokerId(3))), leadership)
    return ClusterSnapshot({}, None, ControllerEpoch(controller_epoch), {TopicPartition("t", 0): view})


def batch(base_offset: int, epoch: int = 0, *, time: int = 0) -> bytes:
    made = bytearray(HEADER)
    made[35:43] = time.to_bytes(8, "big")
    stamp(made, base_offset, LeaderEpoch(epoch))
    made[17:21] = compute_crc(made, read_header(made)).to_bytes(4, "big")
    return bytes(made)


def replicas(root: Path, **content: bytes) -> dict[int, Path]:
    for name, stored in content.items():
        directory = root / name / "t-0"
        directory.mkdir(parents=True)
        directory.joinpath("0" * 20 + ".log").write_bytes(stored)
    return {number: root / name for number, name in enumerate(content, start=1)}


def test_plans_of_a_seed_are_the_same_and_of_others_differ() -> None:
    assert plan_rounds(7, 20, (1, 2, 3)) == plan_rounds(7, 20, (1, 2, 3)) != plan_rounds(8, 20, (1, 2, 3))


def test_no_second_fault_meets_a_lost_disk_and_nothing_is_broken_twice_at_once() -> None:
    for planned in plan_rounds(1, 500, (1, 2, 3)):
        kinds = [fault.kind for fault in planned.faults]
        of_brokers = [
            fault.broker for fault in planned.faults if not fault.kind.name.endswith("ZOOKEEPER") and fault.broker
        ]
        assert FaultKind.WIPE not in kinds or len(kinds) == 1
        assert sum(kind in SERVER_FAULTS for kind in kinds) <= 1
        assert len(set(of_brokers)) == len(of_brokers)


def test_healthy_history_breaks_no_promise() -> None:
    invariants = Invariants()
    for seen in (snapshot(1, (1, 2, 3)), snapshot(1, (1, 2)), snapshot(2, (2,), epoch=4, controller_epoch=2)):
        invariants.look(seen)
    invariants.look(snapshot(-1, (2,), epoch=5, controller_epoch=2))
    assert invariants.broken == []


@pytest.mark.parametrize(
    ("then", "words"),
    [
        (snapshot(1, (2, 3), epoch=4), "not in its ISR"),
        (snapshot(2, (2, 3)), "had leaders 1 and 2 in leader epoch 3"),
        (snapshot(1, (1,), epoch=2), "went back from leader epoch 3 to 2"),
        (snapshot(1, (1, 4)), "has ISR [1, 4]"),
        (snapshot(1, (1,), controller_epoch=0), "controller epoch 1 went back to 0"),
    ],
)
def test_broken_promise_is_told_once(then: ClusterSnapshot, words: str) -> None:
    invariants = Invariants()
    for seen in (snapshot(1, (1, 2, 3)), then, then):
        invariants.look(seen)
    (told,) = invariants.broken
    assert words in told


def test_equal_replicas_agree(tmp_path: Path) -> None:
    stored = batch(0) + batch(1, 2)
    assert compare_replicas(replicas(tmp_path, a=stored, b=stored), ["t-0"]) == []


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (batch(0), "differs from batch 1 on"),
        (batch(0) + batch(1, 3), "differs from batch 1 on"),
        (batch(0, 2, time=5) + batch(1, 2), "differs from batch 0 on"),
        (batch(0) + batch(2, 2), "offset 2 follows 0"),
        (batch(0, 4) + batch(1, 2), "leader epoch 2 follows 4"),
        (batch(0) + batch(1, 2)[:-1] + b"x", "checksum of the batch at byte 61"),
        (batch(0) + batch(1, 2)[:20], "20 bytes behind the last whole batch"),
    ],
)
def test_replica_that_is_damaged_or_differs_is_told(tmp_path: Path, stored: bytes, words: str) -> None:
    found = compare_replicas(replicas(tmp_path, a=batch(0) + batch(1, 2), b=stored), ["t-0"])
    assert any(words in told for told in found), found


def test_consumed_record_that_changes_or_goes_is_told() -> None:
    assert first_difference({0: [1, 2]}, {0: [1, 2, 3]}) == []
    assert "offset 1" in first_difference({0: [1, 2]}, {0: [1, 9, 3]})[0]
    assert "offset 1" in first_difference({0: [1, 2]}, {0: [1]})[0]
