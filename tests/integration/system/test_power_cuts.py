"""The last replica in sync comes back with less than it had, on real processes: the longest log leads, nothing is lost.

Source: KIP-966; docs/concepts/durability.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

import pytest

from regency.cluster.cluster import Cluster
from regency.kafka.record_batch import iter_batches

pytestmark = pytest.mark.integration

COUNT = 200
BATCHES = 10
"""So many of the last are lost."""


def boot_anew(cluster: Cluster, broker: int) -> None:
    """The end of the broker's log was in the page cache of a machine that has been booted since."""
    (directory,) = cluster.log_dirs(broker)
    path = directory / "t-0" / f"{0:020d}.log"
    content = path.read_bytes()
    starts = [position for position, _ in iter_batches(content)]
    assert len(starts) > BATCHES
    path.write_bytes(content[: starts[-BATCHES]])
    (directory / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    _, *directories = (directory / "boot").read_text().splitlines()
    (directory / "boot").write_text("\n".join(["the one before", *directories]))


def elections(cluster: Cluster) -> dict[str, int]:
    """By why, of the controllers that answer; those there were."""
    name, counted = "regency_controller_leader_elections_total", dict[str, int]()
    for broker in cluster.state.brokers:
        with urlopen(f"http://{broker.controller_http}/metrics", timeout=20) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f'{name}{{why="') and (times := int(float(line.split()[-1]))):
                    why = line.split('"')[1]
                    counted[why] = counted.get(why, 0) + times
    return counted


@pytest.mark.parametrize("lossy", [True, False])
def test_the_longest_log_leads_where_the_last_one_in_sync_has_lost_its_end(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
    lossy: bool,
) -> None:
    cluster = new_cluster(settings={"auto.leader.rebalance.enable": "false"})
    create_topic(cluster, partitions=1, min_insync_replicas="2")
    kept = books(cluster, "t", {"linger.ms": 0, "batch.size": 100})
    kept.write(COUNT)
    last = look(cluster).leaders()[0]
    others = [broker for broker in cluster.broker_ids if broker != last]
    for broker in others:
        cluster.kill(broker)
    eventually(lambda: look(cluster).isrs()[0] == (last,), within=30, what="one is in sync")
    cluster.kill(last)
    for broker in others:
        cluster.start(broker)
    eventually(lambda: set(cluster.snapshot().brokers) == set(others), within=30, what="the others are back")
    if lossy:
        boot_anew(cluster, last)
    cluster.start(last)
    eventually(lambda: look(cluster).leaders()[0] != -1, within=30, what="somebody leads")

    assert (look(cluster).leaders()[0] in others) is lossy
    assert elections(cluster) == ({"restarted": 1} if lossy else {"offline": 1})
    cluster.wait_healthy(40)
    kept.write(COUNT)
    kept.assert_nothing_lost()
