"""What a scrape of the ruling controller costs: `./dev bench controller-scrape --partitions 10000 --json FILE`.

Real ZooKeeper holds the partitions in topics of 50; five stand-in agents take what they are told, and report an offset
of every partition they lead. Then /metrics is read again and again, each time after the answer before it has grown too
old to be given once more. Counted is one scrape, from the request to its last byte, and the CPU time of the controller.
"""

from __future__ import annotations

import sys
import time
import urllib.request

from control_plane.plane import Candidate, ControlPlane
from data_plane.usage import cpu_seconds
from reporting import Figures, count, parser, repeat_and_report, run, say

from regency.model.hosting import HostedRole
from regency.model.ids import BrokerId
from regency.model.znodes import paths
from regency.protos import controller_pb2 as pb
from regency.runtime.grpc.channels import call

BROKERS = 5
SCRAPES = 10
TOO_OLD_S = 1.1
HIGH_WATERMARK = 123_456_789


def main() -> None:
    options = parser(__doc__, runs=3)
    options.add_argument("--partitions", type=count, default=10_000)
    arguments = options.parse_args()
    with ControlPlane(BROKERS) as plane:
        plane.fill(arguments.partitions)
        candidate = plane.start_candidate(1, http=True)
        plane.wait_settled(candidate)
        for broker in plane.brokers:
            report(plane, candidate, broker, arguments.partitions)
        lines = [line for line in scrape(candidate).splitlines() if line.startswith("kafka_topic_partition_current_")]
        if len(lines) != arguments.partitions:
            raise RuntimeError(f"{len(lines)} of {arguments.partitions} partitions have an offset")
        say("every partition has its offset")
        repeat_and_report(
            arguments, lambda: measure(candidate), {"partitions": arguments.partitions, "brokers": BROKERS}
        )


def measure(candidate: Candidate) -> Figures:
    """The longest and the usual scrape of some, and CPU for each."""
    taken, size, spent = [], 0, cpu_seconds(candidate.process.pid)
    for _ in range(SCRAPES):
        time.sleep(TOO_OLD_S)
        began = time.monotonic()
        size = len(scrape(candidate))
        taken.append(time.monotonic() - began)
    spent = cpu_seconds(candidate.process.pid) - spent
    ordered = sorted(taken)
    return {
        "scrape_seconds": round(ordered[len(ordered) // 2], 4),
        "longest_scrape_seconds": round(ordered[-1], 4),
        "controller_cpu_seconds": round(spent / SCRAPES, 4),
        "answer_mb": round(size / 1e6, 2),
    }


def scrape(candidate: Candidate) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{candidate.http_port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def report(plane: ControlPlane, candidate: Candidate, broker: BrokerId, partitions: int) -> None:
    """Tell an offset of every partition the broker leads."""
    znode = plane.session.read(paths.broker(broker))
    assert znode is not None, f"broker {broker} is registered"
    changes = []
    for name, topic_id, led in plane.led_by(broker, partitions):
        columns = {
            "leader": [broker] * len(led),
            "role": [HostedRole.LEADER.value] * len(led),
            "high_watermark": [HIGH_WATERMARK] * len(led),
            "log_end_offset": [HIGH_WATERMARK] * len(led),
        }
        zeros = {each: [0] * len(led) for each in ("leader_epoch", "zk_version", "log_start_offset", "isr_len")}
        changes.append(pb.ReplicaReports(topic=name, topic_id=topic_id.bytes, partition=led, **columns, **zeros))
    request = pb.ReportReplicasRequest(
        broker_id=broker,
        broker_epoch=znode.stat.czxid,
        controller_epoch=candidate.describe().controller_epoch,
        full=True,
        number=1,
        changes=changes,
    )
    answer = call(candidate.client.report_replicas, request, timeout_ms=30_000, target="controller")
    if answer.error_code:
        raise RuntimeError(f"the report of broker {broker} was refused: {answer.message}")


if __name__ == "__main__":
    sys.exit(run(main))
