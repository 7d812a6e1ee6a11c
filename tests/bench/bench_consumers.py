"""What a thousand consumers cost an agent to whom nothing comes.

    ./dev bench consumers --consumers 1000

One agent. The consumers poll the end of a topic to which nobody writes, with confluent-kafka's waits of 500 ms.
Measured are the agent's threads and its share of a core while nothing else happens, and what a producer writes to
another topic (confluent-kafka, acks=all, as fast as it can) beside them, compared with its rate before and after them.
"""

from __future__ import annotations

import sys
import time

from data_plane.idlers import Idlers
from data_plane.producing import Load
from data_plane.topics import create_topic
from data_plane.usage import CpuWatch, rss_mb, threads
from reporting import Figures, count, parser, repeat_and_report, run, say, seconds

from regency.cluster.cluster import Cluster

TOPIC, IDLE = "bench", "idle"
WARM_UP_S = 2.0


def main() -> None:
    """Start an agent, measure without, with, and without consumers."""
    options = parser(__doc__, runs=5)
    options.add_argument("--consumers", type=count, default=1000)
    options.add_argument("--client", choices=("plain", "confluent"), default="plain", help="whose consumers they are")
    options.add_argument("--partitions", type=count, default=6)
    options.add_argument("--record-size", type=count, default=100)
    options.add_argument("--seconds", type=seconds, default=8.0, help="of each measurement")
    arguments = options.parse_args()
    with Cluster(brokers=1) as cluster:
        [broker] = cluster.broker_ids
        agent, servers = cluster.pid(broker), cluster.bootstrap_servers
        create_topic(cluster, TOPIC, arguments.partitions, 1)
        create_topic(cluster, IDLE, arguments.partitions, 1)

        def rate() -> float:
            with Load(servers, TOPIC, size=arguments.record_size, acks="all") as load:
                load.rate_over(WARM_UP_S)
                return load.rate_over(arguments.seconds)

        def consumers() -> Idlers:
            return Idlers(
                arguments.client, servers, IDLE, partitions=arguments.partitions, consumers=arguments.consumers
            )

        rate()

        def measure() -> Figures:
            threads_before, rss_before = threads(agent), rss_mb(agent)
            before = rate()
            say("starting the consumers")
            with consumers() as idlers:
                time.sleep(WARM_UP_S)
                usage, clients, answers = CpuWatch(agent), CpuWatch(idlers.pid), idlers.answers
                time.sleep(arguments.seconds)
                figures = {
                    "agent_cores": round(usage.share(), 3),
                    "clients_cores": round(clients.share(), 3),
                    "fetches_per_second": round((idlers.answers - answers) / arguments.seconds),
                    "threads_more": threads(agent) - threads_before,
                    "rss_mb_more": round(rss_mb(agent) - rss_before, 1),
                }
                meanwhile = rate()
            after = rate()
            return figures | {
                "producer_records_per_second": round(meanwhile),
                "producer_keeps_percent": round(100 * meanwhile / ((before + after) / 2), 1),
            }

        repeat_and_report(arguments, measure)


if __name__ == "__main__":
    sys.exit(run(main))
