"""What a scrape of an agent's metrics costs, and what it takes from a producer beside it.

    ./dev bench metrics --partitions 10000

One agent leads every partition. A scrape is timed from the request to the last byte of the answer, by a client on the
same machine; each is a second after the one before, so that none is answered from memory. `scrape_cpu_ms` is what the
agent uses for one of them on all its threads, beyond what it uses while nobody asks: it holds on a busy machine too.

Then one producer (acks=1) writes to a topic of its own as fast as it can, by turns of a few seconds with nobody
scraping and with a scrape every second, so that whatever else the machine does falls on both.
"""

from __future__ import annotations

import http.client
import statistics
import sys
import threading
import time
from typing import Self

from data_plane.producing import Load
from data_plane.topics import create_many, create_topic
from data_plane.usage import CpuWatch, cpu_seconds
from reporting import Figures, multiple_of, parser, repeat_and_report, run, say, seconds

from regency.cluster.cluster import Cluster

TOPIC = "beside"
PER_TOPIC = 50
AT_ONCE = 1000
"""Partitions created by one call."""
SCRAPES = 5
IDLE_S = 3.0
TURN_S = 3.3
EVERY_S = 1.1
"""Longer than an answer is kept."""
LOOP_TIME = b"\nregency_scrape_loop_seconds "


def main() -> None:
    """Start an agent, create, scrape, scrape beside a producer."""
    options = parser(__doc__, runs=3)
    options.add_argument("--partitions", type=multiple_of(PER_TOPIC), default=10_000, help=f"a multiple of {PER_TOPIC}")
    options.add_argument("--seconds", type=seconds, default=15.0, help="how long the producer runs either way")
    arguments = options.parse_args()
    with Cluster(brokers=1) as cluster:
        address = cluster.state.brokers[0].agent_http
        agent = cluster.pid(cluster.broker_ids[0])
        say(f"creating {arguments.partitions:,} partitions")
        for first in range(0, arguments.partitions, AT_ONCE):
            topics = min(AT_ONCE, arguments.partitions - first) // PER_TOPIC
            create_many(cluster, f"idle-{first}", topics, PER_TOPIC, 1)
        create_topic(cluster, TOPIC, 6, 1)

        def measure() -> Figures:
            scrape(address)  # what is written for the first time
            idle, began, used = used_while_idle(agent), time.monotonic(), cpu_seconds(agent)
            alone = [scrape(address) for _ in range(SCRAPES)]
            used = cpu_seconds(agent) - used - idle * (time.monotonic() - began)
            with Load(cluster.bootstrap_servers, TOPIC, size=100, acks="1") as load:
                load.rate_over(2.0)  # until it is warm
                turns = [take_turns(load, address) for _ in range(max(1, round(arguments.seconds / TURN_S)))]
            without, beside = (statistics.fmean(rates) for rates in zip(*[turn[:2] for turn in turns], strict=True))
            return {
                "scrape_ms": round(statistics.median(taken for taken, _, _ in alone) * 1000, 1),
                "scrape_cpu_ms": round(used / SCRAPES * 1000, 1),
                "scrape_loop_ms": round(statistics.median(loop for _, loop, _ in alone) * 1000, 1),
                "scrape_mb": round(alone[-1][2] / 1e6, 2),
                "scrape_beside_producer_ms": round(statistics.median(turn[2] for turn in turns) * 1000, 1),
                "records_per_second": round(without),
                "records_per_second_scraped": round(beside),
                "kept_percent": round(100 * beside / without, 1),
            }

        repeat_and_report(arguments, measure)


def take_turns(load: Load, address: str) -> tuple[float, float, float]:
    """Records per second without and with scrapes, and the median of what these took, seconds."""
    without = load.rate_over(TURN_S)
    with Scraping(address) as scraping:
        beside = load.rate_over(TURN_S)
    return without, beside, statistics.median(scraping.taken)


def used_while_idle(agent: int) -> float:
    """CPU that the agent uses of itself, in shares of a core."""
    watch = CpuWatch(agent)
    time.sleep(IDLE_S)
    return watch.share()


def scrape(address: str) -> tuple[float, float, int]:
    """Wait until nothing is kept, then scrape: seconds in all, seconds on the data loop, bytes."""
    time.sleep(EVERY_S)
    began = time.perf_counter()
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("GET", "/metrics")
    response = connection.getresponse()
    body = response.read()
    taken = time.perf_counter() - began
    connection.close()
    if response.status != 200:
        raise RuntimeError(f"the scrape was answered {response.status}: {body[:200]!r}")
    _, _, told = body.partition(LOOP_TIME)  # looked for in the bytes: who reads all lines takes the core from others
    return taken, float(told.split(b"\n", 1)[0]), len(body)


class Scraping:
    """Scrapes again and again on a thread, as Prometheus does."""

    def __init__(self, address: str) -> None:
        self.taken: list[float] = []
        self._address = address
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            self.taken.append(scrape(self._address)[0])


if __name__ == "__main__":
    sys.exit(run(main))
