"""One agent is killed again and again at random moments, in the middle of a stream of acknowledged records."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest
from breaking.replicas import compare_replicas
from click.testing import CliRunner

from regency.cli.main import cli
from regency.cluster.cluster import Cluster
from regency.demo.ledger import Ledger
from regency.demo.workload import careful_producer, produce, read_back

pytestmark = pytest.mark.integration

KILLS = 10
SEED = 20
PAUSE_S = 0.002
"""Between two records: the stream is to last as long as the killing, and be read back in a moment."""


class Stream:
    """Writes numbered records to topic `t` until it is told to end."""

    def __init__(self, cluster: Cluster) -> None:
        self.ledger = Ledger()
        self._end = threading.Event()
        self._producer = careful_producer(cluster.bootstrap_servers, {"batch.size": 16_000})
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _write(self) -> None:
        produce(self._producer, "t", self._records(), self.ledger, on_sent=lambda _: None)

    def _records(self) -> Iterator[tuple[bytes, bytes]]:
        while not self._end.wait(PAUSE_S):
            number = self.ledger.sent_count
            yield b"key-%d" % (number % 16), b"value of record %d " % number + b"x" * 200


@pytest.mark.timeout(240)
@pytest.mark.long
def test_an_agent_that_is_killed_again_and_again_loses_nothing_that_was_acknowledged(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], look: Callable[..., Any], eventually: Any
) -> None:
    cluster = new_cluster(settings={"replica.lag.time.max.ms": "2000", "log.segment.bytes": "65536"})
    create_topic(cluster, min_insync_replicas="2")
    victim = look(cluster).leaders()[0]
    moments = random.Random(SEED)
    with Stream(cluster) as stream:
        for _ in range(KILLS):
            if moments.random() < 0.5:  # else it may still be catching up
                cluster.wait_healthy(60)
            until = stream.ledger.acked_count + moments.randrange(300)
            eventually(lambda until=until: stream.ledger.acked_count > until, within=60, what="acknowledgements")
            cluster.kill(victim)
            until = stream.ledger.acked_count + moments.randrange(300)
            eventually(lambda until=until: stream.ledger.acked_count > until, within=60, what="the others go on")
            cluster.start(victim)
        cluster.wait_healthy(60)
    ledger = stream.ledger
    assert ledger.failures == {}
    read_back(cluster.bootstrap_servers, "t", ledger, on_read=lambda _: None)
    verdict = ledger.verdict()
    assert verdict.acked == ledger.sent_count > KILLS
    assert verdict.clean, (verdict, ledger.missing())

    words = ["verify", "replicas", "t", "-o", "json", "--bootstrap-server", cluster.bootstrap_servers]
    done = CliRunner().invoke(cli, words, prog_name="regency")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["agrees"], found["complete"]) == (True, True)
    states = [[replica["state"] for replica in each["replicas"]] for each in found["partitions"]]
    assert states == [["agrees"] * 3] * 3
    for broker in cluster.broker_ids:
        assert cluster.stop(broker)
    directories = {broker: cluster.log_dirs(broker)[0] for broker in cluster.broker_ids}
    assert compare_replicas(directories, [f"t-{number}" for number in range(3)]) == []
