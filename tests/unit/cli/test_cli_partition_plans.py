"""Whether a plan still fits, what is left of it, how far it is, what cancels it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from regency.cli.exits import CommandFailed, Exit
from regency.cli.partitions.plan_execution import cancellations, fit, judge, left_of, read_plan, write_rollback
from regency.cli.partitions.reassignments import Situation
from regency.clients.nodes import Node
from regency.model.facts import ReplicaAssignment
from regency.model.ids import BrokerId, TopicPartition
from regency.planning.plan_file import PlanFile, decode_plan, encode_plan, fingerprints
from regency.planning.plans import Move

T0, T1, T2, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("u", 0)
BEFORE = {T0: (1, 2), T1: (1, 2), T2: (2, 1), U0: (1,)}
MOVES = (Move(T0, (1, 2), (3, 2)), Move(T1, (1, 2), (2, 3)))
PLAN = PlanFile(MOVES, "regency partitions plan --out plan.json", {BrokerId(3): "c"}, fingerprints(BEFORE))
ON_ITS_WAY = ReplicaAssignment((3, 2, 1), (3,), (1,))


def situation(*, brokers: str = "abc", moving: dict[TopicPartition, ReplicaAssignment] | None = None, **now: object):
    moving = moving or {}
    assignment = {**BEFORE, **{TopicPartition("t", int(name[1:])): replicas for name, replicas in now.items()}}
    assignment.update((partition, each.replicas) for partition, each in moving.items())
    nodes = {BrokerId(number): Node(BrokerId(number), "h", 1, rack) for number, rack in enumerate(brokers, 1)}
    return Situation(nodes, assignment, moving, {})


def test_a_plan_fits_before_during_and_after_its_own_execution():
    for now, left in (
        (situation(), [T0, T1]),
        (situation(moving={T0: ON_ITS_WAY}), [T1]),
        (situation(t0=(3, 2)), [T1]),
        (situation(t0=(3, 2), t1=(2, 3)), []),
    ):
        assert [move.partition for move in left_of(fit(PLAN, now), now)] == left


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (encode_plan(PLAN).replace(b"plan.json", b"other.json"), Exit.REFUSED),
        (b'{"version":1,"partitions":[]}', Exit.FAILED),
        (b"{", Exit.FAILED),
    ],
)
def test_an_edited_plan_is_refused_and_what_says_nothing_is_an_error(tmp_path: Path, content: bytes, status: Exit):
    file = tmp_path / "edited.json"
    file.write_bytes(content)

    with pytest.raises(CommandFailed) as refused:
        read_plan(file)

    assert refused.value.status is status


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (situation(t2=(1, 2)), "stale: the replicas of topic t are"),
        (situation(t0=(2, 1)), "stale: the replicas of topic t are"),
        (situation(t3=(1, 2)), "stale: the replicas of topic t are"),
        (situation(brokers="abd"), "stale: broker 3 moved to another rack"),
        (situation(brokers="ab"), "replicas to broker 3, not live now; live are 1, 2"),
        (situation(moving={T0: ReplicaAssignment((4, 2, 1), (4,), (1,))}), "Something else moves t-0"),
        (situation(moving={T2: ON_ITS_WAY}), "stale: the replicas of topic t are"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(now: Situation, why: str):
    with pytest.raises(CommandFailed, match=why) as refused:
        fit(PLAN, now)
    assert refused.value.status is Exit.REFUSED
    assert refused.value.hint


def test_a_new_topic_makes_no_plan_stale_but_a_deleted_one_does():
    now = situation()
    assert fit(PLAN, Situation(now.nodes, {**now.assignment, TopicPartition("new", 0): (1,)}, {}, {})) == PLAN
    without = {partition: replicas for partition, replicas in now.assignment.items() if partition.topic != "u"}
    with pytest.raises(CommandFailed, match="topic u"):
        fit(PLAN, Situation(now.nodes, without, {}, {}))


def test_of_kafkas_file_what_was_before_is_filled_in():
    kafkas = PlanFile((Move(T0, (), (3, 2)),))
    assert fit(kafkas, situation()).moves[0].before == (1, 2)
    assert set(fit(kafkas, situation(moving={T0: ON_ITS_WAY})).moves[0].before) == {1, 2}
    with pytest.raises(CommandFailed, match="Something else moves t-0"):
        fit(kafkas, situation(moving={T0: ReplicaAssignment((4, 2, 1), (4,), (1,))}))
    with pytest.raises(CommandFailed, match="no partition t-7"):
        fit(PlanFile((Move(TopicPartition("t", 7), (), (3, 2)),)), situation())


def test_progress_is_done_in_progress_or_differs():
    assert judge(MOVES, situation(t0=(3, 2), t1=(2, 3))).status is Exit.DONE
    going = judge(MOVES, situation(brokers="ab", moving={T0: ON_ITS_WAY}, t1=(2, 3)))
    assert (going.status, going.done, going.in_progress, going.waiting_for) == (Exit.IN_PROGRESS, 1, 1, [3])
    assert judge(MOVES, situation(moving={T0: ON_ITS_WAY})).status is Exit.FAILED


def test_cancelling_gives_back_the_order_of_before_and_leaves_others_alone():
    other = ReplicaAssignment((4, 2, 1), (4,), (1,))
    assert cancellations(PLAN, situation(moving={T0: ON_ITS_WAY, T1: other, U0: other})) == [(T0, (1, 2))]
    kafkas = PlanFile((Move(T0, (), (3, 2)),))
    assert cancellations(kafkas, situation(moving={T0: ON_ITS_WAY})) == [(T0, None)]


def test_the_way_back_is_written_once_and_fits_afterwards(tmp_path):
    file = tmp_path / "plan.rollback.json"
    write_rollback(PLAN, situation(), file)
    written = file.read_bytes()
    write_rollback(PLAN, situation(t0=(3, 2)), file)  # the second half of a plan leads back from all of it
    assert file.read_bytes() == written
    back = decode_plan("", written)
    for now in (situation(t0=(3, 2), t1=(2, 3)), situation(moving={T0: ON_ITS_WAY}), situation()):
        assert fit(back, now) == back
    other = msgspec.structs.replace(PLAN, moves=MOVES[:1])
    with pytest.raises(CommandFailed, match="is there already"):
        write_rollback(other, situation(), file)
