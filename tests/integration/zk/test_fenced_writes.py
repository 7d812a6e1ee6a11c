"""Fenced writes against the real server: one outcome per item, whoever else writes, whichever reply is lost."""

from __future__ import annotations

import threading

import pytest

from regency.model.errors import ControllerMoved
from regency.runtime.zookeeper.fenced import FencedItem, fenced_write
from regency.runtime.zookeeper.session import Create, Delete, SetData, ZkCode, ZkSessionLost

pytestmark = pytest.mark.integration


def is_multi(data: bytes) -> bool:
    return data[8:12] == b"\0\0\0\x0e"


@pytest.fixture
def write(session):
    """fenced_write under the current epoch: version 0 of /epoch."""
    session.multi([Create("/epoch", b"1")])

    def run(*items: FencedItem, epoch_version: int = 0, generation: int | None = None):
        return fenced_write(
            session,
            items,
            epoch_path="/epoch",
            epoch_version=epoch_version,
            generation=session.generation if generation is None else generation,
        )

    return run


def item(*ops) -> FencedItem:
    return FencedItem(ops)


def test_conflict_exists_and_gone_are_told_per_item_and_the_rest_is_written(session, write):
    session.multi([Create("/a", b"0"), Create("/b", b"0"), Create("/there")])
    outcomes = write(
        item(SetData("/a", b"1", 0)),
        item(SetData("/b", b"1", 7)),
        item(Create("/there")),
        item(SetData("/gone", b"1", 0)),
        item(Create("/new", b"n")),
    )
    assert [outcome.code for outcome in outcomes] == [
        ZkCode.OK,
        ZkCode.BAD_VERSION,
        ZkCode.NODE_EXISTS,
        ZkCode.NO_NODE,
        ZkCode.OK,
    ]
    assert outcomes[0].results[0].stat.version == 1
    assert [znode.data for znode in session.read_many(["/a", "/b", "/new"])] == [b"1", b"0", b"n"]


def test_the_operations_of_an_item_stand_or_fall_together(session, write):
    outcomes = write(item(Create("/config"), Create("/missing/topic")), item(Create("/x"), Create("/x/y")))
    assert [outcome.code for outcome in outcomes] == [ZkCode.NO_NODE, ZkCode.OK]
    assert session.children("/").names == ("epoch", "x")


def test_a_moved_epoch_raises_and_writes_nothing(session, write):
    session.multi([SetData("/epoch", b"2", 0)])
    with pytest.raises(ControllerMoved, match="/epoch"):
        write(item(Create("/stale")))
    assert session.read("/stale") is None


def test_many_items_go_in_batches_and_every_conflict_is_found(session, write):
    paths = [f"/p{index:04d}" for index in range(1700)]
    assert all(outcome.ok for outcome in write(*(item(Create(path)) for path in paths)))
    moved = paths[::200]
    session.multi([SetData(path, b"other", 0) for path in moved])
    outcomes = write(*(item(SetData(path, b"ours", 0)) for path in paths))
    failed = [path for path, outcome in zip(paths, outcomes, strict=True) if outcome.code is ZkCode.BAD_VERSION]
    assert failed == moved
    assert sum(outcome.ok for outcome in outcomes) == len(paths) - len(moved)
    assert sum(znode.data == b"ours" for znode in session.read_many(paths)) == len(paths) - len(moved)


def test_a_stale_generation_writes_nothing(session, write):
    with pytest.raises(ZkSessionLost):
        write(item(Create("/stale")), generation=session.generation - 1)
    assert session.read("/stale") is None


def test_a_lost_reply_is_made_up_for_by_reading_back(session, proxy, write):
    session.multi([Create("/a", b"0"), Create("/d")])
    proxy.lose_next_reply(is_multi)
    outcomes = write(item(SetData("/a", b"1", 0)), item(Create("/new", b"n")), item(Delete("/d", 0)))
    assert [outcome.code for outcome in outcomes] == [ZkCode.OK] * 3
    assert outcomes[0].results[0].stat.version == 1
    assert proxy.lost_replies == 1
    assert (session.read("/a").stat.version, session.read("/d")) == (1, None)


def test_own_content_found_by_a_call_that_lost_no_reply_is_a_conflict(session, write):
    session.multi([Create("/a", b"ours")])
    assert write(item(Create("/a", b"ours")))[0].code is ZkCode.NODE_EXISTS


def test_a_write_that_never_arrived_is_sent_again(session, proxy, write):
    proxy.black_hole()
    threading.Timer(0.2, lambda: (proxy.reset_all(), proxy.heal())).start()
    assert write(item(Create("/a")))[0].ok
    assert session.generation == 1
