"""What metrics learn of groups: in steps, with a limit, while groups come and go."""

from __future__ import annotations

import pytest
from group_lab import GROUP, TP, Lab

from regency.broker_agent.groups import coordinator
from regency.broker_agent.groups.api import Survey
from regency.broker_agent.groups.coordinator import look_at
from regency.model.ids import TopicPartition

OTHER = TopicPartition("t", 1)


def looked(*labs: Lab, most: int = 1_000) -> Survey:
    found = Survey()
    for _ in look_at([lab.shard for lab in labs], most, found):
        pass
    return found


def test_members_and_what_is_committed_of_all_shards() -> None:
    one, two = Lab(), Lab()
    member, _ = one.stable(2)
    one.commit({TP: 5, OTHER: 6}, member.member_id, 1)
    two.commit({TP: 7}, group_id="simple")
    found = looked(one, two)
    assert found.members == {GROUP: 2, "simple": 0}
    assert found.offsets == {GROUP: {TP: 5, OTHER: 6}, "simple": {TP: 7}}
    assert found.left_out == 0


def test_a_group_that_does_not_fit_is_left_out_whole_and_smaller_ones_are_not() -> None:
    lab = Lab()
    lab.commit({TP: 1, OTHER: 1}, group_id="a")
    lab.commit({TopicPartition("t", number): 1 for number in range(7)}, group_id="large")
    lab.commit({TP: 1}, group_id="b")
    found = looked(lab, most=5)
    assert (list(found.offsets), found.left_out) == (["a", "b"], 7)
    assert looked(lab, most=0) == Survey(left_out=10)


def test_a_long_group_takes_several_steps_in_which_things_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "SURVEYED_AT_ONCE", 2)
    lab = Lab()
    names = [TopicPartition("t", number) for number in range(5)]
    lab.commit(dict.fromkeys(names, 1), group_id="a")
    lab.commit({TP: 1}, group_id="b")
    lab.commit({TP: 1}, group_id="c")
    found = Survey()
    steps = look_at([lab.shard], 1_000, found)
    next(steps)
    lab.delete_offsets(names[4], group_id="a")
    lab.commit({TopicPartition("t", 9): 1}, group_id="a")
    lab.delete("b")
    rest = sum(1 for _ in steps)
    assert rest >= 2
    assert found.offsets == {"a": dict.fromkeys(names[:4], 1), "c": {TP: 1}}


def test_groups_that_were_given_up_meanwhile_are_no_groups() -> None:
    lab = Lab()
    lab.stable()
    found = Survey()
    steps = look_at([lab.shard], 1_000, found)
    lab.do(lab.shard.unload())
    assert (list(steps), found) == ([], Survey())
