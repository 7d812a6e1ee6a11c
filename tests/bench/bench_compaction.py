"""How fast a log is compacted, and what producers of another topic notice of it.

    ./dev bench compaction --megabytes 1000 --record-size 80 --keys 1000000

One broker. A topic is filled with records of few bytes under random keys, and compacted when its settings ask for it;
beside that 5,000 records a second are produced to another topic, before the cleaning and while it goes on. What is
written of a second is in the latency figures as in `./dev bench latency`. Reading is counted once, though a cleaning
reads its dirty part twice.
"""

from __future__ import annotations

import random
import re
import sys
import time
import urllib.request
from pathlib import Path

from bench_latency import OpenLoop
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from data_plane.topics import create_topic, until
from data_plane.usage import CpuWatch, cpu_seconds_below, rss_mb
from reporting import Figures, Progress, count, parser, percentile, repeat_and_report, run, say, seconds

from regency.cluster.cluster import Cluster

FILLED = "filled"
BESIDE = "bench"
"""The topic of `OpenLoop`."""
WARM_UP_S = 3.0
SETTINGS = {"log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "600000"}
_CLEANER = b"regency.broker_agent.cleaner"


def fill(cluster: Cluster, megabytes: int, size: int, keys: int) -> int:
    """Write so much to the topic that is to be compacted; the records it took."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1", "segment.bytes": str(128 << 20)}
    admin.create_topics([NewTopic(FILLED, 1, 1, config=config)])[FILLED].result(60)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
    )
    value, chosen = bytes(size), random.Random(1)
    wanted, sent = megabytes * 1_000_000, 0
    progress = Progress("written", wanted // (size + 30))
    while sent * (size + 30) < wanted:
        key = b"key-%010d" % chosen.randrange(keys)
        try:
            producer.produce(FILLED, value, key)
        except BufferError:
            producer.poll(0.05)
            continue
        sent += 1
        if not sent % 10_000:
            producer.poll(0)
            progress(sent)
    if producer.flush(120):
        raise RuntimeError("the topic could not be filled")
    return sent


def ask_for_compaction(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    entry = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, FILLED, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)


class Watch:
    """What the broker says of its cleanings."""

    def __init__(self, cluster: Cluster) -> None:
        self._url = f"http://127.0.0.1:{cluster.state.brokers[0].ports['HTTP']}/metrics"

    def read(self, name: str) -> float:
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            text = answer.read().decode()
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    @property
    def cleanings(self) -> float:
        return self.read("regency_log_cleanings_total")


def cleaner_pid(agent: int) -> int:
    """Of the agent's child that cleans."""
    for pid in cpu_seconds_below(agent):
        if _CLEANER in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    return 0


def main() -> None:
    options = parser(__doc__, runs=1)
    options.add_argument("--megabytes", type=count, default=1_000)
    options.add_argument("--record-size", type=count, default=80, help="bytes of a value; keys have 14")
    options.add_argument("--keys", type=count, default=1_000_000)
    options.add_argument("--rate", type=count, default=5_000, help="records per second beside it")
    options.add_argument("--linger-ms", type=float, default=2.0)
    options.add_argument("--seconds", type=seconds, default=15.0, help="how long it is measured without a cleaning")
    arguments = options.parse_args()

    def measure() -> Figures:
        with Cluster(brokers=1, settings=SETTINGS) as cluster:
            create_topic(cluster, BESIDE, 6, 1)
            records = fill(cluster, arguments.megabytes, arguments.record_size, arguments.keys)
            client = OpenLoop(cluster.bootstrap_servers, "all", 100, arguments.linger_ms)
            client.run(arguments.rate, WARM_UP_S)
            alone_ms = client.run(arguments.rate, arguments.seconds)
            watch, agent = Watch(cluster), cluster.pid(1)
            size = watch.read('kafka_log_log_size{topic="filled",partition="0"}')
            say(f"{size / 1e6:.0f} MB of {records:,} records are there; they are compacted now")
            ask_for_compaction(cluster)
            until(lambda: cleaner_pid(agent) != 0, "the cleaner's start")
            began, cleaner = time.perf_counter(), CpuWatch(cleaner_pid(agent))
            beside_ms: list[float] = []
            peak_mb = 0.0
            while not watch.cleanings:
                beside_ms += client.run(arguments.rate, 1.0)
                peak_mb = max(peak_mb, rss_mb(cleaner_pid(agent)))
            took_s = time.perf_counter() - began
            cores = cleaner.share()
            beside_ms.sort()
            read = watch.read("regency_log_cleaning_read_bytes_total")
            written = watch.read("regency_log_cleaning_written_bytes_total")
        alone_p99, beside_p99 = percentile(alone_ms, 99), percentile(beside_ms, 99)
        return {
            "log_mb": round(size / 1e6),
            "records": records,
            "seconds": round(took_s, 2),
            "mb_per_second": round(size / 1e6 / took_s, 1),
            "cleaner_cores": round(cores, 2),
            "mb_per_cpu_second": round(size / 1e6 / (cores * took_s), 1),
            "read_mb": round(read / 1e6),
            "written_mb": round(written / 1e6),
            "cleaner_peak_rss_mb": round(peak_mb),
            "p99_alone_ms": round(alone_p99, 2),
            "p99_beside_ms": round(beside_p99, 2),
            "p99_factor": round(beside_p99 / alone_p99, 2),
        }

    repeat_and_report(arguments, measure)


if __name__ == "__main__":
    sys.exit(run(main))
