"""How fast an ordinary producer writes.

    ./dev bench produce --acks all --replication 3 --record-size 100
    ./dev bench produce --acks 1 --replication 1 --record-size 1000

Records are counted until all are acknowledged, as fast as one confluent-kafka producer gives them away; a tenth as many
warm up. p50 and p99 are of records that wait in a full queue of that client: see `./dev bench latency` for others.
"""

from __future__ import annotations

import sys

from data_plane.producing import produce
from data_plane.topics import create_topic
from reporting import Figures, Progress, count, parser, percentile, repeat_and_report, run

from regency.cluster.cluster import Cluster

TOPIC = "bench"


def main() -> None:
    options = parser(__doc__, runs=5)
    options.add_argument("--acks", choices=("0", "1", "all"), default="all")
    options.add_argument("--replication", type=count, default=3, help="also the number of brokers")
    options.add_argument("--partitions", type=count, default=6)
    options.add_argument("--record-size", type=count, default=100)
    options.add_argument("--records", type=count, default=500_000)
    arguments = options.parse_args()
    size, acks = arguments.record_size, arguments.acks
    with Cluster(brokers=arguments.replication) as cluster:
        create_topic(cluster, TOPIC, arguments.partitions, arguments.replication)
        servers = cluster.bootstrap_servers
        produce(servers, TOPIC, count=max(arguments.records // 10, 1), size=size, acks=acks)

        def measure() -> Figures:
            progress = Progress("acknowledged", arguments.records)
            done = produce(servers, TOPIC, count=arguments.records, size=size, acks=acks, progress=progress)
            rate = arguments.records / done.seconds
            return {
                "records_per_second": round(rate),
                "mb_per_second": round(rate * size / 1e6, 1),
                "p50_ms": round(percentile(done.latencies_ms, 50), 2),
                "p99_ms": round(percentile(done.latencies_ms, 99), 2),
            }

        repeat_and_report(arguments, measure)


if __name__ == "__main__":
    sys.exit(run(main))
