"""Chunks of bulk reads follow the size of the replies."""

from __future__ import annotations

from regency.runtime.zookeeper.client import TARGET_REPLY_BYTES, ChunkPlan


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
