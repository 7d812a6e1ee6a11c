"""A log that is nobody's replica any more is set aside when its broker starts, and nothing in it is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration


def test_a_log_of_no_topic_is_renamed_and_the_others_go_on(
    cluster: Cluster, create_topic: Callable[..., None], books: Callable[..., Any], eventually: Any
) -> None:
    create_topic(cluster)
    kept = books(cluster, "t")
    kept.write(1_000)
    broker = next(each for each in cluster.broker_ids if each != cluster.controller_id())
    (data,) = cluster.log_dirs(broker)
    assert cluster.stop(broker)
    shutil.copytree(data / "t-0", data / "ghost-0")
    content = (data / "ghost-0" / f"{0:020}.log").read_bytes()
    assert content
    cluster.start(broker)
    eventually(lambda: not (data / "ghost-0").exists(), what="the log of no topic is set aside")
    cluster.wait_healthy(20)
    (stray,) = data.glob("ghost-0.*-stray")
    assert (stray / f"{0:020}.log").read_bytes() == content
    kept.write(1_000)
    kept.assert_nothing_lost()
    assert sorted(path.name for path in data.glob("t-*")) == ["t-0", "t-1", "t-2"]
