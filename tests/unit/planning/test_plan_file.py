"""Plans as files: read back as written, edited ones refused, Kafka's own taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from regency.model.ids import BrokerId, TopicPartition
from regency.planning.plan_file import (
    PlanFile,
    PlanRefused,
    decode_plan,
    decode_topics,
    encode_kafkas,
    encode_plan,
    fingerprints,
    reverse,
)
from regency.planning.plans import Move

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = {T0: (BrokerId(1), BrokerId(2)), T1: (BrokerId(2), BrokerId(1))}
MOVE = Move(T0, (BrokerId(1), BrokerId(2)), (BrokerId(3), BrokerId(2)), "nothing stays on broker 1")
PLAN = PlanFile((MOVE,), "regency partitions plan --drain 1 --out plan.json", {BrokerId(3): "a"}, fingerprints(NOW))


def test_a_plan_is_read_back_as_it_was_written():
    assert decode_plan("plan.json", encode_plan(PLAN)) == PLAN


def test_a_plan_may_be_formatted_otherwise():
    assert decode_plan("plan.json", json.dumps(json.loads(encode_plan(PLAN))).encode()) == PLAN


@pytest.mark.parametrize(
    "edit",
    [
        lambda plan: plan["partitions"][0].update(replicas=[3, 4]),
        lambda plan: plan["partitions"][0].update(before=[1, 3]),
        lambda plan: plan["partitions"].clear(),
        lambda plan: plan["brokers"].update({"3": "b"}),
        lambda plan: plan["computed_from"].update(t="0"),
        lambda plan: plan.pop("hash"),
        lambda plan: plan.pop("computed_from"),
    ],
)
def test_an_edited_plan_is_refused_and_told_how_to_go_on(edit: Callable[[dict[str, Any]], object]):
    content = json.loads(encode_plan(PLAN))
    edit(content)
    with pytest.raises(PlanRefused, match="edited") as refused:
        decode_plan("plan.json", json.dumps(content).encode())
    assert "regency partitions plan --drain 1" in refused.value.hint


def test_another_version_is_refused():
    with pytest.raises(PlanRefused, match="version 2"):
        decode_plan("kafkas.json", b'{"version":2,"partitions":[{"topic":"t","partition":0,"replicas":[3]}]}')


def test_a_file_of_kafkas_is_taken_as_it_is():
    data = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[3,2],"log_dirs":["any","any"]}]}'
    plan = decode_plan("kafkas.json", data)
    assert plan.is_kafkas and [(move.partition, move.after) for move in plan.moves] == [(T0, (3, 2))]
    assert decode_plan("again", encode_kafkas((move.partition, move.after) for move in plan.moves)) == plan


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"\xff", "malformed|UTF-8|invalid"),
        (b"[]", "object"),
        (b'{"version":1,"partitions":[]}', "names no partitions: there is nothing to do"),
        (b'{"partitions":[{"topic":"t","partition":0,"replicas":[]}]}', "t-0: no replicas"),
        (b'{"partitions":[{"topic":"t","partition":0,"replicas":[1,1]}]}', "a broker stands twice"),
        (b'{"partitions":[{"topic":"t","partition":0,"replicas":[-1]}]}', ">= 0"),
        (b'{"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["/d"]}]}', "log directories"),
        (
            b'{"partitions":[{"topic":"t","partition":0,"replicas":[1]},{"topic":"t","partition":0,"replicas":[2]}]}',
            "stands twice",
        ),
    ],
)
def test_what_is_no_plan_is_refused(data: bytes, why: str):
    with pytest.raises(PlanRefused, match=why):
        decode_plan("plan.json", data)


def test_the_way_back_begins_where_the_plan_ends_and_ends_where_it_began():
    back = reverse(PLAN, NOW, {BrokerId(1): "b", BrokerId(3): "a"})
    assert [(move.before, move.after) for move in back.moves] == [(MOVE.after, MOVE.before)]
    assert back.computed_from == fingerprints({**NOW, T0: MOVE.after})
    assert back.brokers == {1: "b"}
    assert decode_plan("back", encode_plan(back)) == back


def test_fingerprints_know_the_order_of_replicas_but_not_of_partitions():
    assert fingerprints(NOW) == fingerprints(dict(reversed(NOW.items())))
    assert fingerprints(NOW) != fingerprints({**NOW, T0: (BrokerId(2), BrokerId(1))})


def test_topics_to_move_are_read():
    assert decode_topics("t.json", b'{"topics":[{"topic":"b"},{"topic":"a"},{"topic":"b"}],"version":1}') == ["b", "a"]
    with pytest.raises(PlanRefused, match="names no topics"):
        decode_topics("t.json", b'{"topics":[]}')
