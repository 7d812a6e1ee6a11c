"""How fast a follower that is far behind catches up, alone and beside a producer.

    ./dev bench catchup --behind-mb 2000

Broker 3 replicates a topic that brokers 1 and 2 lead. It is stopped, the topic grows by 2 GB, it starts again: counted
from the moment it is registered until it is in the ISR of every partition. Then the same once more while a producer
writes with acks=all, as fast as it can, to a topic of brokers 1 and 2; its rate before is compared with its rate
meanwhile. MB are of record values.
"""

from __future__ import annotations

import sys
import time

from data_plane.producing import Load, produce
from data_plane.topics import create_assigned, until
from reporting import (
    Figures,
    Progress,
    count,
    medians,
    parser,
    repeat,
    run,
    say,
    seconds,
    stay_on_two_cores,
    write_report,
)

from regency.cluster.cluster import Cluster

TOPIC, LOAD = "behind", "load"
LEADERS, FOLLOWER = (1, 2), 3
RECORD_BYTES = 1000
TIMEOUT_S = 600.0


def main() -> int:
    """Start a cluster for every run, let the follower fall behind twice, watch it catch up."""
    options = parser(__doc__, runs=3)
    options.add_argument("--behind-mb", type=count, default=2000)
    options.add_argument("--partitions", type=count, default=6)
    options.add_argument("--produce-size", type=count, default=100, help="bytes of a record of the producer beside it")
    options.add_argument("--seconds", type=seconds, default=10.0, help="how long the producer is measured alone")
    arguments = options.parse_args()
    stay_on_two_cores()

    def measure() -> Figures:
        with Cluster(brokers=3) as cluster:
            replicas = [(LEADERS[number % 2], FOLLOWER) for number in range(arguments.partitions)]
            create_assigned(cluster, TOPIC, replicas)
            create_assigned(cluster, LOAD, [LEADERS, LEADERS[::-1]] * 3)
            fall_behind(cluster, arguments.behind_mb)
            alone = catch_up(cluster)
            fall_behind(cluster, arguments.behind_mb)
            with Load(cluster.bootstrap_servers, LOAD, size=arguments.produce_size, acks="all") as load:
                load.rate_over(2)
                say("measuring the producer alone")
                before = load.rate_over(arguments.seconds)
                meter = load.meter()
                beside = catch_up(cluster)
                meanwhile = meter()
        return {
            "mb_per_second": round(arguments.behind_mb / alone, 1),
            "mb_per_second_beside_producer": round(arguments.behind_mb / beside, 1),
            "producer_records_per_second": round(before),
            "producer_keeps_percent": round(100 * meanwhile / before, 1),
        }

    runs = repeat(arguments.runs, measure)
    write_report(arguments.json, vars(arguments), medians(runs), runs)
    return 0


def fall_behind(cluster: Cluster, megabytes: int) -> None:
    """Stop the follower in order and let the topic grow."""
    cluster.stop(FOLLOWER)
    until(lambda: bool(cluster.snapshot().under_replicated), "the ISRs without the stopped broker")
    say(f"broker {FOLLOWER} is stopped; writing {megabytes} MB")
    records = megabytes * 1_000_000 // RECORD_BYTES
    progress = Progress("written", records)
    produce(cluster.bootstrap_servers, TOPIC, count=records, size=RECORD_BYTES, acks="1", progress=progress)


def catch_up(cluster: Cluster) -> float:
    """Start the follower; seconds from its registration until it is in the ISR of everything it replicates."""
    [directory] = cluster.log_dirs(FOLLOWER)
    cluster.start(FOLLOWER)
    began = time.monotonic()
    progress = Progress("bytes that the follower has")

    def is_back() -> bool:
        progress(sum(file.stat().st_size for file in directory.glob(f"{TOPIC}-*/*.log")))
        return not cluster.snapshot().under_replicated

    until(is_back, "every ISR full again", TIMEOUT_S)
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(run(main))
