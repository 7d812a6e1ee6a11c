"""How fast an ordinary producer writes: `./dev bench produce --acks all --replication 3 --record-size 100`.

Brokers, ZooKeeper and the client share the machine. Prints one line, and writes the figures with --json FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from regency.cluster.cluster import Cluster


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    return {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}


def produce(servers: str, count: int, size: int, acks: str) -> tuple[float, list[float], int]:
    """Produce `count` records; seconds, one latency in 100 in milliseconds, and how many failed."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": acks,
            "enable.idempotence": acks == "all",
            "linger.ms": 5,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 500_000,
        }
    )
    latencies_ms: list[float] = []
    failed = 0

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal failed
        failed += error is not None
        latencies_ms.append(message.latency() * 1000)

    value = os.urandom(size)
    started = time.perf_counter()
    for number in range(count):
        callback = delivered if number % 100 == 0 else None
        while True:
            try:
                producer.produce("bench", value, on_delivery=callback)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(120)
    return time.perf_counter() - started, sorted(latencies_ms), failed


def main() -> int:
    """Start a cluster, warm it up, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--acks", choices=("0", "1", "all"), default="all")
    parser.add_argument("--replication", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--record-size", type=int, default=100)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with Cluster(brokers=max(arguments.replication, 1)) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        topic = NewTopic("bench", arguments.partitions, arguments.replication)
        admin.create_topics([topic], operation_timeout=20)["bench"].result(timeout=30)
        cluster.wait_healthy(30)
        produce(cluster.bootstrap_servers, arguments.records // 10, arguments.record_size, arguments.acks)
        seconds, latencies_ms, failed = produce(
            cluster.bootstrap_servers, arguments.records, arguments.record_size, arguments.acks
        )
    results = {
        "records_per_second": round(arguments.records / seconds),
        "mb_per_second": round(arguments.records * arguments.record_size / seconds / 1e6, 1),
        "p50_ms": round(latencies_ms[len(latencies_ms) // 2], 2),
        "p99_ms": round(latencies_ms[len(latencies_ms) * 99 // 100], 2),
        "failed": failed,
    }
    params = {name: value for name, value in vars(arguments).items() if name != "json"}
    print(" ".join(f"{name}={value}" for name, value in results.items()))
    if arguments.json:
        report = {"bench": "produce", "params": params, "results": results, "machine": machine()}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
