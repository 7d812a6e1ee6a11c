"""What an agent with thousands of partitions costs while nothing happens, and how soon it is back after a clean stop.

    ./dev bench idle --partitions 4000

One agent leads every partition; each holds one record. CPU is the share of one core over the time given, memory the
resident set. A restart is counted from the start of the process until the agent is registered, and until it answers, as
the leader, where each partition ends.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import OFFSET_END, Consumer, KafkaException, Producer, TopicPartition
from data_plane.topics import TIMEOUT_S, create_many, until
from data_plane.usage import CpuWatch, descriptors, rss_mb, threads
from reporting import Figures, multiple_of, parser, repeat_and_report, run, say, seconds

from regency.cluster.cluster import Cluster

PER_TOPIC = 50
SETTLE_S = 5.0
"""After a start or a creation: what is still to be written or reported then belongs to that."""


def main() -> None:
    """Start an agent, create, watch it do nothing, restart it."""
    options = parser(__doc__, runs=3)
    options.add_argument("--partitions", type=multiple_of(PER_TOPIC), default=4000, help=f"a multiple of {PER_TOPIC}")
    options.add_argument("--seconds", type=seconds, default=20.0, help="how long each run watches")
    arguments = options.parse_args()
    with Cluster(brokers=1) as cluster:
        [broker] = cluster.broker_ids
        say(f"creating {arguments.partitions:,} partitions")
        topics = create_many(cluster, "idle", arguments.partitions // PER_TOPIC, PER_TOPIC, 1)
        write_one_each(cluster.bootstrap_servers, topics)

        def measure() -> Figures:
            time.sleep(SETTLE_S)
            agent, child = cluster.pid(broker), cluster.controller_process(broker).pid
            usage, child_usage = CpuWatch(agent), CpuWatch(child)
            time.sleep(arguments.seconds)
            figures = {
                "agent_cores": round(usage.share(), 4),
                "controller_cores": round(child_usage.share(), 4),
                "agent_rss_mb": round(rss_mb(agent), 1),
                "controller_rss_mb": round(rss_mb(child), 1),
                "threads": threads(agent),
                "descriptors": descriptors(agent),
            }
            began = time.monotonic()
            if not cluster.stop(broker, timeout_s=TIMEOUT_S):
                raise RuntimeError("the agent did not stop by itself")
            stopped = time.monotonic()
            cluster.start(broker)
            registered = time.monotonic()
            until(lambda: led(cluster.bootstrap_servers, topics), "every partition led")
            return figures | {
                "stop_seconds": round(stopped - began, 2),
                "registered_seconds": round(registered - stopped, 2),
                "led_seconds": round(time.monotonic() - stopped, 2),
            }

        repeat_and_report(arguments, measure)


def write_one_each(servers: str, topics: list[str]) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for topic in topics:
        for partition in range(PER_TOPIC):
            producer.produce(topic, b"one", partition=partition)
        producer.poll(0)
    if left := producer.flush(TIMEOUT_S):
        raise RuntimeError(f"{left} records were not written")


def led(servers: str, topics: list[str]) -> bool:
    """Whether the agent answers for every partition as its leader."""
    asked = [TopicPartition(topic, number, OFFSET_END) for topic in topics for number in range(PER_TOPIC)]
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench"})
    try:
        return all(answer.error is None for answer in consumer.offsets_for_times(asked, TIMEOUT_S))
    except KafkaException:
        return False
    finally:
        consumer.close()


if __name__ == "__main__":
    sys.exit(run(main))
