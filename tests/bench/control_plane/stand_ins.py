"""Stand-in agents: registered brokers that take control requests over the real gRPC, answer, and remember when.

`python -m control_plane.stand_ins CONNECT DIRECTORY ID…` serves all of them in one process. It prints a JSON line when
all are registered. Then it reads a command per line and answers each with one JSON line: `die ID` ends a broker,
`forget` drops what was noted, `report` tells for each request what it brought and when it was answered.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from regency.broker_agent.registry.registration import SessionFile, register
from regency.model.clock import SystemClock
from regency.model.facts import Broker, Endpoint
from regency.model.ids import NO_BROKER_EPOCH, BrokerId
from regency.protos import control_pb2 as pb
from regency.runtime.grpc.servers import GrpcServer, service, unary
from regency.runtime.zookeeper.client import connect
from regency.runtime.zookeeper.session import ZkSession

SERVICE = "regency.control.v1.AgentControl"
HOST = "127.0.0.1"

Request = pb.LeaderAndIsrRequest | pb.UpdateMetadataRequest | pb.StopReplicaRequest


class Taken(NamedTuple):
    """A request, and when it was answered: seconds of the machine's monotonic clock."""

    request: Request
    at: float


class StandIn:
    """One broker. Its gRPC server has threads of its own."""

    def __init__(self, broker: BrokerId, connect_string: str, directory: Path) -> None:
        self.broker = broker
        self.taken: list[Taken] = []
        self._epoch = 0
        methods = {
            "LeaderAndIsr": unary(self._take, pb.LeaderAndIsrRequest, pb.ControlResponse),
            "UpdateMetadata": unary(self._take, pb.UpdateMetadataRequest, pb.ControlResponse),
            "StopReplica": unary(self._take, pb.StopReplicaRequest, pb.ControlResponse),
        }
        self._server = GrpcServer([service(SERVICE, methods)], threads=2, name=f"stand-in-{broker}")
        port = self._server.bind(HOST, 0)
        self._server.start()
        directory.mkdir(parents=True, exist_ok=True)
        self.session: ZkSession = connect(connect_string, session_timeout_ms=60_000, connect_timeout_ms=20_000)
        facts = Broker(
            broker, NO_BROKER_EPOCH, (Endpoint("PLAINTEXT", HOST, 9092), Endpoint("CONTROL", HOST, port)), rack=None
        )
        done = register(
            self.session,
            facts,
            self.session.generation,
            SessionFile(directory),
            SystemClock(),
            threading.Event(),
            whole=True,
        )
        self._epoch = done.epoch

    def _take(self, request: Request) -> pb.ControlResponse:
        self.taken.append(Taken(request, time.monotonic()))
        return pb.ControlResponse(broker_epoch=self._epoch, controller_epoch=request.header.controller_epoch)

    def die(self) -> None:
        """End the registration at once, and the server with it."""
        self.session.close()
        self._server.stop(0)

    def report(self) -> list[dict[str, object]]:
        return [_summary(self.broker, taken) for taken in list(self.taken)]


def _summary(broker: BrokerId, taken: Taken) -> dict[str, object]:
    request = taken.request
    summary: dict[str, object] = {
        "broker": broker,
        "rpc": type(request).__name__.removesuffix("Request"),
        "epoch": request.header.controller_epoch,
        "at": taken.at,
        "bytes": request.ByteSize(),
    }
    if isinstance(request, pb.LeaderAndIsrRequest):
        summary["full"], summary["last"] = request.full, request.last_chunk
        summary["partitions"] = sum(len(topic.partition) for topic in request.topics)
        summary["led"] = sum(list(topic.leader).count(broker) for topic in request.topics)
        summary["new_leaders"] = sum(_moved(topic) for topic in request.topics)
        summary["isr_sizes"] = _sizes(request.topics)
    elif isinstance(request, pb.UpdateMetadataRequest):
        summary["snapshot"], summary["last"] = request.snapshot, request.last_chunk
        summary["brokers"] = any(pb.MetadataDelta.FromString(each).brokers_present for each in request.deltas)
        summary["partitions"] = sum(
            len(topic.partition) for each in request.deltas for topic in pb.MetadataDelta.FromString(each).topics
        )
    return summary


def _moved(topic: pb.PartitionStates) -> int:
    """Partitions whose leader is not the first of their replicas."""
    moved, at = 0, 0
    for leader, count in zip(topic.leader, topic.replicas_len, strict=True):
        moved += topic.replicas[at] != leader
        at += count
    return moved


def _sizes(topics: Sequence[pb.PartitionStates]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for topic in topics:
        for size in topic.isr_len:
            sizes[size] = sizes.get(size, 0) + 1
    return sizes


def main() -> int:
    connect_string, directory, *numbers = sys.argv[1:]
    brokers = [BrokerId(int(number)) for number in numbers]
    stand_ins = {broker: StandIn(broker, connect_string, Path(directory) / str(broker)) for broker in brokers}
    print(json.dumps({"registered": brokers}), flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        answer: object = "done"
        if command == "die":
            stand_ins.pop(BrokerId(int(arguments[0]))).die()
        elif command == "forget":
            for each in stand_ins.values():
                each.taken.clear()
        else:
            answer = [summary for each in stand_ins.values() for summary in each.report()]
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
