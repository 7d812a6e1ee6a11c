"""How fast partitions are created: `./dev bench create --partitions 10000 --json FILE`.

One CreateTopics for topics of 50 partitions and three replicas, on three stand-in agents; counted from the call until
its answer, and until the last broker has acknowledged what it leads and follows.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from control_plane.plane import ControlPlane
from reporting import multiple_of, parser, run, say, write_report

from regency.kafka.apis import ApiKey
from regency.kafka.codec import CreateTopicsRequest, decode_body, encode_body
from regency.protos.admin_pb2 import Envelope
from regency.runtime.grpc.channels import call

BROKERS = 3
PER_TOPIC = 50
VERSION = 7


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--partitions", type=multiple_of(PER_TOPIC), default=10_000, help=f"a multiple of {PER_TOPIC}")
    arguments = options.parse_args()
    with ControlPlane(BROKERS) as plane:
        ruling = plane.start_candidate(1)
        plane.wait_settled(ruling)
        plane.ask_agents("forget")
        topics = [
            CreateTopicsRequest.CreatableTopic(
                name=f"topic-{number:05d}", num_partitions=PER_TOPIC, replication_factor=3, assignments=[], configs=[]
            )
            for number in range(arguments.partitions // PER_TOPIC)
        ]
        say(f"creating {len(topics):,} topics")
        body = bytes(encode_body(VERSION, CreateTopicsRequest(topics=topics)))
        envelope = Envelope(api_key=ApiKey.CREATE_TOPICS, api_version=VERSION, request=body)
        began = time.monotonic()
        answer = call(ruling.admin.forward, envelope, timeout_ms=120_000, target="controller")
        answered = time.monotonic()
        plane.wait_settled(ruling)
        report: list[dict[str, Any]] = plane.ask_agents("report")
        rss = ruling.peak_rss_mb()
    if answer.outcome.error_code:
        raise RuntimeError(f"not created: {answer.outcome.message}")
    created = decode_body(ApiKey.CREATE_TOPICS, VERSION, answer.response).topics
    refused = [topic.error_message for topic in created if topic.error_code]
    if refused:
        raise RuntimeError(f"not created: {refused[:3]}")
    hosts = [row for row in report if row["rpc"] == "LeaderAndIsr"]
    told = sum(row["partitions"] for row in hosts)
    if told < 3 * len(topics) * PER_TOPIC:
        raise RuntimeError(f"{told} replicas were told their role, not {3 * len(topics) * PER_TOPIC}")
    write_report(
        arguments.json,
        {"partitions": len(topics) * PER_TOPIC, "brokers": BROKERS},
        {
            "answered_seconds": round(answered - began, 3),
            "led_seconds": round(max(row["at"] for row in hosts) - began, 3),
            "controller_peak_rss_mb": rss,
        },
    )


if __name__ == "__main__":
    sys.exit(run(main))
