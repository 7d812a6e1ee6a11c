"""How long a record takes until it is acknowledged, at a load that leaves room.

    ./dev bench latency --rate 5000 --replication 3 --record-size 100

Every millisecond the records that are due are handed to one confluent-kafka producer (acks=all). Each is counted from
the moment it was due, so that a client or a broker that falls behind is not measured less often for it.

With --linger-ms 0 librdkafka sends each record alone, and once five requests of a broker are unanswered, which is all
that an idempotent producer may have, its threads spin: more than a core, which brokers on the same machine lack.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import KafkaError, Message, Producer
from data_plane.topics import create_topic
from data_plane.usage import CpuWatch
from reporting import Figures, Progress, count, parser, percentile, repeat_and_report, run, seconds

from regency.cluster.cluster import Cluster

TOPIC = "bench"
WARM_UP_S = 3.0
_TICK_S = 0.001


class OpenLoop:
    """A producer that sends on schedule, whatever became of the records before."""

    def __init__(self, servers: str, acks: str, size: int, linger_ms: float) -> None:
        self._producer = Producer(
            {"bootstrap.servers": servers, "acks": acks, "enable.idempotence": acks == "all", "linger.ms": linger_ms}
        )
        self._value = bytes(size)
        self._latencies_ms: list[float] = []
        self._failures: list[str] = []

    def run(self, rate: int, for_s: float) -> list[float]:
        """Send `rate` records per second; milliseconds of all of them, rising. Raises RuntimeError."""
        self._latencies_ms = []
        progress = Progress("acknowledged", int(rate * for_s))
        total, sent = int(rate * for_s), 0
        began = time.perf_counter()
        while sent < total:
            due = min(int((time.perf_counter() - began) * rate) + 1, total)
            while sent < due:
                self._send(began + sent / rate)
                sent += 1
            self._producer.poll(_TICK_S)
            progress(len(self._latencies_ms))
        left = self._producer.flush(60)
        if left or self._failures:
            raise RuntimeError(
                f"{left} of {total} records are left, {len(self._failures)} failed: {self._failures[:3]}"
            )
        return sorted(self._latencies_ms)

    def _send(self, due: float) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self._failures.append(str(error))
            self._latencies_ms.append((time.perf_counter() - due) * 1000)

        self._producer.produce(TOPIC, self._value, on_delivery=delivered)


def main() -> None:
    options = parser(__doc__, runs=5)
    options.add_argument("--acks", choices=("1", "all"), default="all")
    options.add_argument("--replication", type=count, default=3, help="also the number of brokers")
    options.add_argument("--partitions", type=count, default=6)
    options.add_argument("--record-size", type=count, default=100)
    options.add_argument("--rate", type=count, default=5_000, help="records per second")
    options.add_argument(
        "--linger-ms", type=float, default=2.0, help="how long the producer gathers (default 2; librdkafka's own is 5)"
    )
    options.add_argument("--seconds", type=seconds, default=15.0, help="length of a run")
    arguments = options.parse_args()
    with Cluster(brokers=arguments.replication) as cluster:
        create_topic(cluster, TOPIC, arguments.partitions, arguments.replication)

        def measure() -> Figures:
            client = OpenLoop(cluster.bootstrap_servers, arguments.acks, arguments.record_size, arguments.linger_ms)
            client.run(arguments.rate, WARM_UP_S)
            agents = [CpuWatch(cluster.pid(broker)) for broker in cluster.broker_ids]
            began, cpu_s = time.perf_counter(), time.process_time()
            latencies_ms = client.run(arguments.rate, arguments.seconds)
            took_s = time.perf_counter() - began
            return {
                "records_per_second": round(len(latencies_ms) / took_s),
                "p50_ms": round(percentile(latencies_ms, 50), 2),
                "p99_ms": round(percentile(latencies_ms, 99), 2),
                "p999_ms": round(percentile(latencies_ms, 99.9), 2),
                "max_ms": round(latencies_ms[-1], 2),
                "producer_cores": round((time.process_time() - cpu_s) / took_s, 3),
                "agents_cores": round(sum(agent.share() for agent in agents), 3),
            }

        repeat_and_report(arguments, measure)


if __name__ == "__main__":
    sys.exit(run(main))
