"""A disk that does not answer holds the whole agent; others lead once the watchdog has ended it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration


def test_an_agent_whose_disk_hangs_ends_and_others_lead(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
    tmp_path: Path,
) -> None:
    flag = tmp_path / "hangs"
    cluster = new_cluster(
        settings={"regency.loop.watchdog.ms": "5000"},
        agent_command=(sys.executable, str(Path(__file__).with_name("hanging_disk.py")), str(flag)),
    )
    create_topic(cluster, partitions=1, min_insync_replicas="2")
    victim = look(cluster).leaders()[0]
    kept = books(cluster, "t")
    kept.write(2_000, midway=lambda: flag.write_text(str(cluster.pid(victim)), "ascii"))
    assert look(cluster).leaders()[0] not in (victim, -1)
    log = cluster.log(victim).read_text("utf-8")
    assert "the data loop has hung for" in log
    assert "in hanging" in log, "the stacks say where it stands"
    flag.write_text("", "ascii")
    cluster.restart(victim)
    cluster.wait_healthy(30)
    kept.assert_nothing_lost()
