"""What a multi may hold, and what its results mean."""

from __future__ import annotations

import struct

import pytest

from regency.runtime.zookeeper import ops as zk_ops
from regency.runtime.zookeeper.ops import TARGET_REPLY_BYTES, ChunkPlan
from regency.runtime.zookeeper.session import (
    Check,
    Create,
    SetData,
    ZkAuthFailed,
    ZkCode,
    ZkError,
    ZkRequestTooLarge,
    ZkSessionLost,
)
from regency.runtime.zookeeper.wire import WireError

END = struct.pack("!iBi", -1, 1, -1)


def failures(*codes: int) -> bytes:
    return b"".join(struct.pack("!iBii", -1, 0, 0, code) for code in codes) + END


def test_paths_gain_and_lose_the_chroot():
    assert [zk_ops.below("/c", path) for path in ("/", "/a")] == ["/c", "/c/a"]
    assert [zk_ops.below("", path) for path in ("/", "/a")] == ["/", "/a"]
    assert [zk_ops.without_chroot("/c", path) for path in ("/c", "/c/a")] == ["/", "/a"]
    assert zk_ops.without_chroot("", "/a") == "/a"


@pytest.mark.parametrize("path", ["", "a", "/a/", "a/b"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ValueError, match="absolute path"):
        zk_ops.encode_ops([Create(path)], "", restrict=False)


def test_an_empty_multi_is_refused():
    with pytest.raises(ValueError, match="no operations"):
        zk_ops.encode_ops([], "", restrict=False)


def test_limits_are_exact():
    room = (
        zk_ops.MAX_MULTI_BYTES
        - len(zk_ops.encode_ops([SetData("/a", b"", 0), SetData("/b", b"", 0)], "", restrict=False))
        + 9
    )
    fits = [SetData("/a", bytes(room // 2), 0), SetData("/b", bytes(room - room // 2), 0)]
    assert len(zk_ops.encode_ops(fits, "", restrict=False)) == zk_ops.MAX_MULTI_BYTES + 9
    with pytest.raises(ZkRequestTooLarge):
        zk_ops.encode_ops([*fits, Check("/", None)], "", restrict=False)
    assert zk_ops.encode_ops([Check("/", 0)] * 501, "", restrict=False)
    with pytest.raises(ZkRequestTooLarge):
        zk_ops.encode_ops([Check("/", 0)] * 502, "", restrict=False)


def test_an_estimate_of_an_operations_size_is_never_too_low():
    for op in (Create("/a", bytes(100)), SetData("/a", bytes(100), 0), Check("/a", 0)):
        assert zk_ops.op_size(op) >= len(zk_ops.encode_ops([op], "", restrict=True)) - 9


def test_rolled_back_is_told_apart_from_what_failed():
    ops = [Check("/a", 0)] * 8
    outcome = zk_ops.decode_outcome(ops, failures(0, -103, -2, -101, -102, -108, -110, -111), "")
    assert [result.code for result in outcome.results] == [
        ZkCode.ROLLED_BACK,
        ZkCode.BAD_VERSION,
        ZkCode.ROLLED_BACK,
        ZkCode.NO_NODE,
        ZkCode.NO_AUTH,
        ZkCode.NO_CHILDREN_FOR_EPHEMERALS,
        ZkCode.NODE_EXISTS,
        ZkCode.NOT_EMPTY,
    ]
    assert outcome.failed_index == 1


def test_a_failure_without_a_name_is_an_error_that_names_operation_and_code():
    with pytest.raises(ZkError, match=r"check /a.*-125"):
        zk_ops.decode_outcome([Check("/a", 0)], failures(-125), "")


def test_results_that_do_not_match_the_operations_are_refused():
    with pytest.raises(WireError):
        zk_ops.decode_outcome([Check("/a", 0)], failures(0, 0), "")


@pytest.mark.parametrize(
    ("number", "kind"), [(-102, ZkAuthFailed), (-115, ZkAuthFailed), (-112, ZkSessionLost), (-6, ZkError)]
)
def test_errors_of_whole_requests_have_their_class(number, kind):
    assert type(zk_ops.error_of(number, "read /a")) is kind


def sizes(plan: ChunkPlan, bytes_per_path: int) -> list[int]:
    found = []
    while not plan.done:
        chunk = plan.next()
        found.append(len(chunk))
        plan.learn(len(chunk), bytes_per_path * len(chunk))
    return found


def test_small_replies_let_chunks_double_up_to_the_limit():
    assert sizes(ChunkPlan(["/p"] * 2000), 100) == [32, 64, 128, 256, 500, 500, 500, 20]


def test_large_replies_shrink_chunks_to_the_target():
    size = TARGET_REPLY_BYTES // 4
    assert sizes(ChunkPlan(["/p"] * 50), size) == [32, 4, 4, 4, 4, 2]


def test_one_huge_reply_leaves_one_path_per_request():
    assert sizes(ChunkPlan(["/p"] * 34), 10 * TARGET_REPLY_BYTES) == [32, 1, 1]


def test_long_paths_are_bounded_by_the_size_of_the_request():
    plan = ChunkPlan(["/" + "x" * 100_000] * 5)
    assert sizes(plan, 1) == [2, 2, 1]


def test_every_path_is_asked_once_and_in_order():
    paths = [f"/{index}" for index in range(777)]
    plan = ChunkPlan(paths, max_paths=100)
    found: list[str] = []
    while not plan.done:
        chunk = plan.next()
        found += chunk
        plan.learn(len(chunk), 3000)
    assert found == paths


def test_nothing_to_read_is_done_at_once():
    assert ChunkPlan([]).done
