"""How fast a consumer reads what is in the page cache.

    ./dev bench consume --record-size 1000

One agent; the records are written first, then one confluent-kafka consumer reads all partitions from the beginning, in
runs one after another, of which the first warms up. MB are of record values.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from data_plane.producing import produce
from data_plane.topics import create_topic
from data_plane.usage import CpuWatch
from reporting import Figures, Progress, count, parser, repeat_and_report, run, say

from regency.cluster.cluster import Cluster

TOPIC = "bench"
AT_ONCE = 10_000
SILENCE_S = 30.0


def consume(servers: str, partitions: int, records: int) -> float:
    """Read so many records from the beginning; seconds from the first to the last. Raises RuntimeError."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 1 << 20,
            "queued.max.messages.kbytes": 1 << 16,
        }
    )
    progress = Progress("consumed", records)
    try:
        consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(partitions)])
        started, done = 0.0, 0
        while done < records:
            messages = consumer.consume(min(AT_ONCE, records - done), SILENCE_S)
            failed = [str(message.error()) for message in messages if message.error() is not None]
            if failed or not messages:
                raise RuntimeError(failed[0] if failed else f"nothing came for {SILENCE_S:g} s after {done} records")
            started = started or time.perf_counter()
            done += len(messages)
            progress(done)
        return time.perf_counter() - started
    finally:
        consumer.close()


def main() -> None:
    options = parser(__doc__, runs=5)
    options.add_argument("--partitions", type=count, default=6)
    options.add_argument("--record-size", type=count, default=1000)
    options.add_argument("--records", type=count, default=1_000_000)
    arguments = options.parse_args()
    with Cluster(brokers=1) as cluster:
        create_topic(cluster, TOPIC, arguments.partitions, 1)
        servers = cluster.bootstrap_servers
        say(f"writing {arguments.records:,} records of {arguments.record_size:,} bytes")
        progress = Progress("written", arguments.records)
        produce(servers, TOPIC, count=arguments.records, size=arguments.record_size, acks="1", progress=progress)
        say("reading all of it once to warm up")
        consume(servers, arguments.partitions, arguments.records)

        def measure() -> Figures:
            agent = CpuWatch(cluster.pid(cluster.broker_ids[0]))
            rate = arguments.records / consume(servers, arguments.partitions, arguments.records)
            return {
                "records_per_second": round(rate),
                "mb_per_second": round(rate * arguments.record_size / 1e6, 1),
                "agent_cores": round(agent.share(), 2),
            }

        repeat_and_report(arguments, measure)


if __name__ == "__main__":
    sys.exit(run(main))
