"""How fast a dead broker is replaced: `./dev bench broker-death --partitions 100000 --json FILE`.

One of three stand-in agents, which leads a third of the partitions, ends. Counted from its registration gone until the
new leaders have acknowledged that they lead, and until every leader has acknowledged an ISR without the dead one.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from control_plane.plane import ControlPlane
from reporting import count, parser, run, say, write_report

from regency.model.ids import BrokerId
from regency.model.znodes import paths

BROKERS = 3


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--partitions", type=count, default=100_000)
    arguments = options.parse_args()
    with ControlPlane(BROKERS) as plane:
        plane.fill(arguments.partitions)
        ruling = plane.start_candidate(1)
        plane.wait_settled(ruling)
        plane.ask_agents("forget")
        gone = plane.when_gone(paths.broker(BrokerId(3)))
        say("ending broker 3")
        plane.ask_agents("die 3")
        began = gone()
        time.sleep(0.2)  # in which the controller hears of it
        plane.wait_settled(ruling)
        report: list[dict[str, Any]] = plane.ask_agents("report")
        rss = ruling.peak_rss_mb()
    hosts = sorted((row for row in report if row["rpc"] == "LeaderAndIsr"), key=lambda row: row["at"])
    led = arguments.partitions // BROKERS
    moved, elected_at, shrunk, shrunk_at = 0, 0.0, 0, 0.0
    for row in hosts:
        if moved < led:
            moved, elected_at = moved + min(row["new_leaders"], row["led"]), row["at"]
        small = sum(count for size, count in row["isr_sizes"].items() if int(size) == BROKERS - 1)
        if small:
            shrunk, shrunk_at = shrunk + small, row["at"]
    if moved < led or shrunk < 2 * arguments.partitions:
        raise RuntimeError(
            f"{moved} leaders were moved and {shrunk} ISRs told, not {led} and {2 * arguments.partitions}"
        )
    write_report(
        arguments.json,
        {"partitions": arguments.partitions, "brokers": BROKERS},
        {
            "new_leaders_seconds": round(elected_at - began, 3),
            "isr_shrinks_seconds": round(shrunk_at - began, 3),
            "leaders_moved": moved,
            "controller_peak_rss_mb": rss,
        },
    )


if __name__ == "__main__":
    sys.exit(run(main))
