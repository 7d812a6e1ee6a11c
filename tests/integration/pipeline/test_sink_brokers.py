"""What a sink does with brokers that refuse what it would send by default: topics that take small batches alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pyarrow as pa
import pytest

from regency.cluster.cluster import Cluster
from regency.cluster.zookeeper import EmbeddedZooKeeper
from regency.pipeline.sink.options import write_options
from regency.pipeline.sink.tasks import write_at_least_once

pytestmark = pytest.mark.integration

ROWS = [b"%d".ljust(100, b".") % row for row in range(300)]


@pytest.fixture(scope="module")
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(
        brokers=1,
        directory=tmp_path_factory.mktemp("brokers"),
        zookeeper_connect=zookeeper.connect_string + "/sink-brokers",
        settings={"default.replication.factor": "1"},
    )
    with closing(made):
        made.start()
        yield made


@pytest.mark.parametrize("headers", [False, True])
def test_a_topic_that_takes_small_batches_alone_is_written_to_beside_others(
    cluster: Cluster, create_topic, values: Callable[[Cluster, str], list[bytes]], headers: bool
) -> None:
    names = ["large", "small"] if not headers else ["small-too", "large-too"]
    for name in names:
        create_topic(
            cluster, name, partitions=1, replication=1, **({"max_message_bytes": "2000"} if "small" in name else {})
        )
    told = [[{"key": "a", "value": b""}]] * len(ROWS)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batches = [
        pa.record_batch(
            [pa.array([name] * len(ROWS)), pa.array(ROWS), pa.array(told if headers else [None] * len(ROWS), kind)],
            names=["topic", "value", "headers"],
        )
        for name in names
    ]
    options = write_options({"kafka.bootstrap.servers": cluster.bootstrap_servers}, stream=False)
    write_at_least_once(batches, options)
    assert [values(cluster, name) for name in names] == [ROWS, ROWS]
