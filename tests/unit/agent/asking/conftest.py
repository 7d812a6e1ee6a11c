"""A ruling controller that the test plays, over real channels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from regency.broker_agent.control.metadata_cache import (
    MetadataCache,
    RulingController,
)
from regency.model.ids import (
    BrokerId,
    ControllerEpoch,
)
from regency.protos import controller_pb2 as pb
from regency.runtime.grpc.servers import GrpcServer, service, unary


class PlayedController:
    """Answers what the test put there; remembers what it was asked."""

    def __init__(self) -> None:
        self.reports: list[pb.ReportReplicasRequest] = []
        self.report_answer = pb.ReportReplicasResponse()
        self.shutdowns: list[pb.ControlledShutdownRequest] = []
        self.shutdown_answers: list[pb.ControlledShutdownResponse] = []
        self.server = GrpcServer(
            [
                service(
                    "regency.controller.v1.Controller",
                    {
                        "ReportReplicas": unary(self._report, pb.ReportReplicasRequest, pb.ReportReplicasResponse),
                        "ControlledShutdown": unary(
                            self._shutdown, pb.ControlledShutdownRequest, pb.ControlledShutdownResponse
                        ),
                    },
                )
            ],
            threads=2,
            name="played",
        )
        self.port = self.server.bind("127.0.0.1", 0)
        self.server.start()

    def _report(self, request: pb.ReportReplicasRequest) -> pb.ReportReplicasResponse:
        self.reports.append(request)
        return self.report_answer

    def _shutdown(self, request: pb.ControlledShutdownRequest) -> pb.ControlledShutdownResponse:
        self.shutdowns.append(request)
        return self.shutdown_answers.pop(0)

    def known(self, broker: int = 1, epoch: int = 3) -> MetadataCache:
        """Metadata by which this controller rules."""
        return ruled_by(self.port, broker, epoch)


def ruled_by(port: int, broker: int = 1, epoch: int = 3) -> MetadataCache:
    cache = MetadataCache()
    cache.saw_controller(RulingController(BrokerId(broker), ControllerEpoch(epoch), f"127.0.0.1:{port}"))
    return cache


@pytest.fixture
def controller() -> Iterator[PlayedController]:
    played = PlayedController()
    yield played
    played.server.stop(0)
