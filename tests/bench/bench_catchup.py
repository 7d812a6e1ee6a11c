"""How fast a follower that is far behind catches up, alone and beside a producer.

    ./dev bench catchup --behind-mb 2000

Broker 3 replicates a topic that brokers 1 and 2 lead. It is stopped, the topic grows by 2 GB, it starts again: counted
from the moment it is registered until it is in the ISR of every partition. Then the same once more while a producer
writes with acks=all, as fast as it can, to a topic of brokers 1 and 2; its rate before is compared with its rate
meanwhile. With --throttle-mb the follower is held back then, as people do who want to keep their producers (KIP-73).
MB are of record values.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from data_plane.producing import Load, produce
from data_plane.topics import create_assigned, until
from reporting import Figures, Progress, count, parser, repeat_and_report, run, say, seconds

from regency.cluster.cluster import Cluster

TOPIC, LOAD = "behind", "load"
LEADERS, FOLLOWER = (1, 2), 3
RECORD_BYTES = 1000
TIMEOUT_S = 600.0


def main() -> None:
    """Start a cluster for every run, let the follower fall behind twice, watch it catch up."""
    options = parser(__doc__, runs=3)
    options.add_argument("--behind-mb", type=count, default=2000)
    options.add_argument("--partitions", type=count, default=6)
    options.add_argument("--produce-size", type=count, default=100, help="bytes of a record of the producer beside it")
    options.add_argument("--seconds", type=seconds, default=10.0, help="how long the producer is measured alone")
    options.add_argument("--throttle-mb", type=count, help="per second, beside the producer (default: no throttle)")
    arguments = options.parse_args()

    def measure() -> Figures:
        with Cluster(brokers=3) as cluster:
            replicas = [(LEADERS[number % 2], FOLLOWER) for number in range(arguments.partitions)]
            create_assigned(cluster, TOPIC, replicas)
            create_assigned(cluster, LOAD, [LEADERS, LEADERS[::-1]] * 3)
            fall_behind(cluster, arguments.behind_mb)
            alone = catch_up(cluster)
            if arguments.throttle_mb:
                throttle(cluster, arguments.throttle_mb)
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

    repeat_and_report(arguments, measure)


def fall_behind(cluster: Cluster, megabytes: int) -> None:
    """Stop the follower in order and let the topic grow."""
    cluster.stop(FOLLOWER)
    until(lambda: bool(cluster.snapshot().under_replicated), "the ISRs without the stopped broker")
    say(f"broker {FOLLOWER} is stopped; writing {megabytes} MB")
    records = megabytes * 1_000_000 // RECORD_BYTES
    progress = Progress("written", records)
    produce(cluster.bootstrap_servers, TOPIC, count=records, size=RECORD_BYTES, acks="1", progress=progress)


def throttle(cluster: Cluster, megabytes: int) -> None:
    """Let the follower fetch so many MB per second at most of what it is behind with; it has to run for that."""
    wishes = {
        ConfigResource(ResourceType.BROKER, str(FOLLOWER)): {
            "follower.replication.throttled.rate": str(megabytes * 1_000_000)
        },
        ConfigResource(ResourceType.TOPIC, TOPIC): {"follower.replication.throttled.replicas": "*"},
    }
    for resource, values in wishes.items():
        for key, value in values.items():
            entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            resource.add_incremental_config(entry)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for answer in admin.incremental_alter_configs(list(wishes)).values():
        answer.result(timeout=30)


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
