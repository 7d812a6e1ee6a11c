"""The rules of a fenced multi, with every way in which a reply can be lost."""

from __future__ import annotations

import pytest

from regency.model.errors import ControllerMoved
from regency.runtime.zookeeper.fenced import FencedItem, fenced_write
from regency.runtime.zookeeper.session import Check, Create, Delete, SetData, ZkCode, ZkConnectionLost, ZkSessionLost

OK, BAD_VERSION, NODE_EXISTS, NO_NODE = ZkCode.OK, ZkCode.BAD_VERSION, ZkCode.NODE_EXISTS, ZkCode.NO_NODE


def items(*ops) -> list[FencedItem]:
    return [FencedItem((op,)) for op in ops]


def write(zk, batch, *, epoch_version: int = 5, generation: int = 1, resumed: bool = False):
    outcomes = fenced_write(
        zk, batch, epoch_path="/epoch", epoch_version=epoch_version, generation=generation, resumed=resumed
    )
    return [outcome.code for outcome in outcomes]


def test_every_batch_begins_with_the_check_of_the_epoch(zk):
    assert write(zk, items(*(Create(f"/{index}") for index in range(1200)))) == [OK] * 1200
    assert [len(ops) for ops in zk.sent] == [501, 501, 201]
    assert all(ops[0] == Check("/epoch", 5) for ops in zk.sent)


def test_batches_are_cut_by_bytes_too(zk):
    assert write(zk, items(*(Create(f"/{index}", bytes(100_000)) for index in range(10)))) == [OK] * 10
    assert [len(ops) - 1 for ops in zk.sent] == [4, 4, 2]


def test_the_operations_of_one_item_are_never_parted(zk):
    pairs = [FencedItem((Create(f"/a{index}"), Create(f"/b{index}"), Create(f"/c{index}"))) for index in range(200)]
    assert write(zk, pairs) == [OK] * 200
    assert [len(ops) - 1 for ops in zk.sent] == [498, 102]


def test_nothing_to_write_sends_nothing(zk):
    assert write(zk, []) == []
    assert zk.sent == []


def test_a_failed_check_of_the_epoch_is_a_moved_controller(zk):
    with pytest.raises(ControllerMoved, match="resign"):
        write(zk, items(Create("/a")), epoch_version=4)
    del zk.znodes["/epoch"]
    with pytest.raises(ControllerMoved):
        write(zk, items(Create("/a")))
    assert "/a" not in zk.znodes


def test_one_conflict_is_reported_and_the_rest_goes_again_as_one_batch(zk):
    zk.put("/b", version=9)
    assert write(zk, items(Create("/a"), SetData("/b", b"", 3), Create("/c"))) == [OK, BAD_VERSION, OK]
    assert [len(ops) - 1 for ops in zk.sent] == [3, 2]


def test_after_two_conflicts_in_a_batch_each_item_goes_alone(zk):
    zk.put("/b", version=9)
    zk.put("/d")
    batch = items(Create("/a"), SetData("/b", b"", 3), Create("/c"), Create("/d"), Delete("/none", 0), Create("/e"))
    assert write(zk, batch) == [OK, BAD_VERSION, OK, NODE_EXISTS, NO_NODE, OK]
    assert [len(ops) - 1 for ops in zk.sent] == [6, 5, 1, 1, 1, 1]


def test_a_failed_item_tells_which_of_its_operations_failed(zk):
    zk.put("/topic")
    outcomes = fenced_write(
        zk, [FencedItem((Create("/config"), Create("/topic")))], epoch_path="/epoch", epoch_version=5, generation=1
    )
    assert [result.code for result in outcomes[0].results] == [ZkCode.ROLLED_BACK, NODE_EXISTS]
    assert (outcomes[0].ok, outcomes[0].code) == (False, NODE_EXISTS)


def test_a_lost_reply_of_an_applied_batch_is_recognised_and_not_sent_again(zk):
    zk.put("/set", b"old", version=3)
    zk.put("/del", version=1)
    zk.faults = ["after"]
    batch = items(Create("/new", b"n"), SetData("/set", b"new", 3), Delete("/del", 1), Create("/me", ephemeral=True))
    assert write(zk, batch) == [OK] * 4
    assert len(zk.sent) == 1


def test_a_lost_reply_of_a_batch_that_never_arrived_is_sent_again(zk):
    zk.put("/set", b"old", version=3)
    zk.put("/del", version=1)
    zk.faults = ["before"]
    assert write(zk, items(Create("/new"), SetData("/set", b"new", 3), Delete("/del", 1))) == [OK] * 3
    assert len(zk.sent) == 2


def test_only_the_batch_whose_reply_was_lost_is_read_back(zk):
    zk.put("/there", b"x")
    zk.faults = ["", "before"]
    batch = items(Create("/there", b"x"), *(Create(f"/{index}") for index in range(600)))
    assert write(zk, batch) == [NODE_EXISTS, *[OK] * 600]


def test_somebody_else_who_came_between_is_a_conflict(zk):
    zk.put("/set", b"old", version=3)
    zk.faults = ["before"]

    def others_write() -> None:
        zk.put("/set", b"theirs", version=4)
        zk.put("/new", b"theirs")
        zk.put("/mine", b"", owner=1)

    zk.between = others_write
    batch = items(SetData("/set", b"new", 3), Create("/new", b"ours"), Create("/mine", ephemeral=True))
    assert write(zk, batch) == [BAD_VERSION, NODE_EXISTS, NODE_EXISTS]


def test_a_write_after_ours_is_a_conflict_that_makes_the_caller_look(zk):
    zk.put("/set", b"old", version=3)
    zk.faults = ["after"]
    zk.between = lambda: zk.put("/set", b"the leader's", version=5)
    assert write(zk, items(SetData("/set", b"new", 3))) == [BAD_VERSION]


def test_a_znode_gone_since_is_gone(zk):
    zk.put("/set", b"old", version=3)
    zk.faults = ["before"]
    zk.between = lambda: zk.znodes.pop("/set")
    assert write(zk, items(SetData("/set", b"new", 3))) == [NO_NODE]


def test_a_moved_epoch_is_found_when_a_lost_batch_is_sent_again(zk):
    zk.faults = ["before"]
    zk.between = lambda: zk.put("/epoch", version=6)
    with pytest.raises(ControllerMoved):
        write(zk, items(Create("/a")))


def test_a_reply_lost_again_and_again_is_given_up_as_unknown(zk):
    zk.faults = ["before"] * 5
    with pytest.raises(ZkConnectionLost, match="3 times"):
        write(zk, items(Create("/a")))


def test_a_write_that_finds_no_connection_waits_for_one_but_own_content_is_then_no_success(zk):
    zk.put("/a", b"ours")
    zk.away = 2
    assert write(zk, items(Create("/a", b"ours"), Create("/b"))) == [NODE_EXISTS, OK]
    zk.away = 3
    with pytest.raises(ZkConnectionLost, match="no contact"):
        write(zk, items(Create("/c")))


def test_a_read_back_that_is_lost_itself_is_tried_again_but_not_for_ever(zk):
    zk.faults, zk.sync_faults = ["after"], 1
    assert write(zk, items(Create("/a"))) == [OK]
    zk.faults, zk.sync_faults = ["after"], 9
    with pytest.raises(ZkConnectionLost):
        write(zk, items(Create("/b")))


def test_a_write_that_was_given_up_is_read_back_before_anything_is_sent_again(zk):
    zk.put("/set", b"old", version=3)
    zk.put("/other", b"old", version=1)
    batch = items(Create("/a", b"ours"), SetData("/set", b"new", 3), SetData("/other", b"new", 1), Create("/b"))
    zk.faults, zk.sync_faults = ["after"], 2
    with pytest.raises(ZkConnectionLost):
        write(zk, batch)
    zk.put("/other", b"theirs", version=3)
    del zk.znodes["/b"]
    zk.sent.clear()
    assert write(zk, batch, resumed=True) == [OK, OK, BAD_VERSION, OK]
    assert zk.sent == [[Check("/epoch", 5), Create("/b")]]


def test_a_write_resumed_under_another_session_is_not_made_up_for(zk):
    zk.generation = 2
    with pytest.raises(ZkSessionLost):
        write(zk, items(Create("/a")), resumed=True)


def test_a_session_that_ends_meanwhile_is_not_made_up_for_under_the_next(zk):
    zk.faults = ["over"]
    with pytest.raises(ZkSessionLost):
        write(zk, items(Create("/a")))
    with pytest.raises(ZkSessionLost):
        write(zk, items(Create("/a")), generation=0)

    def next_session() -> None:
        zk.generation = 2

    zk.faults, zk.between = ["after"], next_session
    with pytest.raises(ZkSessionLost):
        write(zk, items(Create("/b")))


@pytest.mark.parametrize(
    ("op", "complaint"),
    [
        (SetData("/a", b"", -1), "overwrite"),
        (Delete("/a", -1), "overwrite"),
        (Create("/a-", sequential=True), "sequential"),
    ],
)
def test_what_cannot_be_fenced_is_refused(zk, op, complaint):
    with pytest.raises(ValueError, match=complaint):
        write(zk, items(op))
    with pytest.raises(ValueError, match="any epoch"):
        write(zk, [], epoch_version=-1)
    with pytest.raises(ValueError, match="without operations"):
        write(zk, [FencedItem(())])
    assert zk.sent == []


def test_the_other_write_tells_what_became_of_a_sequential_one(zk):
    zk.faults = ["after"]
    (outcome,) = write(zk, [FencedItem((Create("/b", b"x"), Create("/n-", b"word", sequential=True)))])
    assert outcome is ZkCode.OK
    assert len(zk.sent) == 1


def test_a_sequential_write_that_left_no_trace_is_sent_again(zk):
    zk.faults = ["before"]
    (outcome,) = write(zk, [FencedItem((Create("/b", b"x"), Create("/n-", b"word", sequential=True)))])
    assert outcome is ZkCode.OK
    assert len(zk.sent) == 2


GUARDS = tuple(Check(f"/brokers/incarnations/{broker}", broker) for broker in (1, 2, 3))


def guarded(*guards: int) -> tuple[Check, ...]:
    return tuple(GUARDS[broker - 1] for broker in guards)


def test_guards_are_sent_once_per_batch_and_count_as_its_operations(zk):
    for guard in GUARDS:
        zk.put(guard.path, version=guard.version)
    batch = [FencedItem((Create(f"/{index}"),), guarded(1 + index % 2, 3)) for index in range(1_000)]
    assert write(zk, batch) == [OK] * 1_000
    assert [len(ops) for ops in zk.sent] == [501, 501, 1 + 3 + 6]
    assert all(sorted(ops[1:4], key=str) == sorted(GUARDS, key=str) for ops in zk.sent)


def test_a_guard_that_does_not_hold_fails_those_who_have_it_and_nobody_else(zk):
    zk.put(GUARDS[0].path, version=1)
    zk.put(GUARDS[1].path, version=7)  # the broker has registered again
    zk.put("/taken")
    batch = [
        FencedItem((Create("/a"),), guarded(1)),
        FencedItem((Create("/b"),), guarded(1, 2)),
        FencedItem((Create("/taken"),)),
        FencedItem((Create("/c"),), guarded(2)),
        FencedItem((Create("/d"),), guarded(3)),
        FencedItem((Create("/e"),), guarded(1)),
    ]
    outcomes = fenced_write(zk, batch, epoch_path="/epoch", epoch_version=5, generation=1)
    assert [outcome.code for outcome in outcomes] == [OK, BAD_VERSION, NODE_EXISTS, BAD_VERSION, NO_NODE, OK]
    assert [outcome.guard for outcome in outcomes] == [None, GUARDS[1], None, GUARDS[1], GUARDS[2], None]
    assert {"/b", "/c", "/d"}.isdisjoint(zk.znodes) and {"/a", "/e"} <= zk.znodes.keys()


def test_what_was_written_before_a_lost_reply_counts_whatever_its_guards_say_since(zk):
    zk.put(GUARDS[0].path, version=1)
    zk.faults = ["after"]
    batch = [FencedItem((Create("/a", b"x"),), guarded(1))]
    zk.between = lambda: zk.put(GUARDS[0].path, version=2)
    assert write(zk, batch) == [OK]


def test_what_was_lost_on_the_way_is_sent_again_under_its_guards(zk):
    zk.put(GUARDS[0].path, version=2)
    zk.faults = ["before"]
    assert write(zk, [FencedItem((Create("/a"),), guarded(1))]) == [BAD_VERSION]
    assert "/a" not in zk.znodes
