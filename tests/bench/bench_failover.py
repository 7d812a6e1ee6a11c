"""How fast another controller takes over: `./dev bench failover --partitions 100000 --json FILE`.

Real ZooKeeper holds the partitions in topics of 50; five stand-in agents speak the real gRPC; the ruling controller is
killed. Counted from /controller gone (session expiry is not) until every live broker has acknowledged LeaderAndIsr
and UpdateMetadata of the new epoch. ZooKeeper, controllers and stand-ins share the machine.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from control_plane.plane import ControlPlane, until
from reporting import count, parser, run, say, write_report

from regency.model.znodes import paths

BROKERS = 5


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--partitions", type=count, default=100_000)
    arguments = options.parse_args()
    with ControlPlane(BROKERS) as plane:
        plane.fill(arguments.partitions)
        first = plane.start_candidate(1)
        plane.wait_settled(first)
        second = plane.start_candidate(2)
        time.sleep(1)  # the second candidate loses its first race, as one does that waits for long
        epoch = second.describe().controller_epoch or first.describe().controller_epoch
        plane.ask_agents("forget")
        gone = plane.when_gone(paths.CONTROLLER)
        say("killing the controller")
        first.kill()
        began = gone()
        until(lambda: second.describe().active, "the second controller ruled")
        plane.wait_settled(second)
        told: list[dict[str, Any]] = []

        def all_told() -> bool:  # `wait_settled` does not wait for metadata
            told[:] = [row for row in plane.ask_agents("report") if row["epoch"] > epoch]
            return len(_last(told, "LeaderAndIsr")) == len(_last(told, "UpdateMetadata")) == BROKERS

        until(all_told, "every broker was told everything")
        rss = second.peak_rss_mb()
        phases = {phase.name: round(phase.seconds, 3) for phase in second.describe().phases}
        del plane.candidates[first.broker]
    hosts, metadata = _last(told, "LeaderAndIsr"), _last(told, "UpdateMetadata")
    counted = sum(row["partitions"] for row in told if row["rpc"] == "LeaderAndIsr")
    if counted != 3 * arguments.partitions:
        raise RuntimeError(f"{counted} replicas were told their role, not {3 * arguments.partitions}")
    write_report(
        arguments.json,
        {"partitions": arguments.partitions, "brokers": BROKERS},
        {
            "failover_seconds": round(max(*hosts.values(), *metadata.values()) - began, 3),
            "first_broker_told_seconds": round(min(hosts.values()) - began, 3),
            "leader_and_isr_seconds": round(max(hosts.values()) - began, 3),
            "update_metadata_seconds": round(max(metadata.values()) - began, 3),
            "controller_peak_rss_mb": rss,
            "phases": phases,
        },
    )


def _last(told: list[dict[str, Any]], rpc: str) -> dict[int, float]:
    """When each broker has answered the last piece of what it was told by these requests."""
    return {row["broker"]: row["at"] for row in told if row["rpc"] == rpc and row["last"]}


if __name__ == "__main__":
    sys.exit(run(main))
