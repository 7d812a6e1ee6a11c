"""Service Inspection of protos/inspection.proto: what people ask. Also controllers that do not rule serve it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from regency.controller.doctor.examination import Examiner
from regency.controller.doctor.summary import Summariser
from regency.history.pages import Position, Wanted, read_page
from regency.model.ids import BrokerId
from regency.protos import inspection_pb2 as pb
from regency.runtime.grpc.servers import ServiceHandler, service, unary

SERVICE: Final = "regency.inspection.v1.Inspection"


class Inspection:
    """Its methods run on gRPC's threads; one history and one examination are read at a time."""

    def __init__(self, broker: BrokerId, history: Path | None, examiner: Examiner, summariser: Summariser) -> None:
        self._broker = broker
        self._history = history
        self._examiner = examiner
        self._summariser = summariser
        self._reading = threading.Lock()
        self._examining = threading.Lock()

    def handler(self) -> ServiceHandler:
        """The service for a GrpcServer."""
        return service(
            SERVICE,
            {
                "ReadHistory": unary(self.read_history, pb.ReadHistoryRequest, pb.ReadHistoryResponse),
                "Examine": unary(self.examine, pb.ExamineRequest, pb.ExamineResponse),
                "Summarise": unary(self.summarise, pb.SummariseRequest, pb.SummariseResponse),
            },
        )

    def read_history(self, request: pb.ReadHistoryRequest) -> pb.ReadHistoryResponse:
        """A page of this host's decision records."""
        answer = pb.ReadHistoryResponse(broker_id=self._broker)
        if self._history is None:
            return answer
        wanted = Wanted(frozenset(request.subjects), request.topic, request.since_ms, request.until_ms)
        after = request.after
        position = Position(after.role, after.controller_epoch, after.number) if request.HasField("after") else None
        with self._reading:
            page = read_page(self._history, wanted, position)
        answer.decisions.extend(page.lines)
        if page.next is not None:
            answer.next.role, answer.next.controller_epoch, answer.next.number = page.next
        return answer

    def examine(self, request: pb.ExamineRequest) -> pb.ExamineResponse:
        """Whether ZooKeeper, this controller and all agents agree; only where it rules."""
        with self._examining:
            return self._examiner.examine(request)

    def summarise(self, request: pb.SummariseRequest) -> pb.SummariseResponse:
        """The cluster at a glance; only where it rules."""
        return self._summariser.summarise(request)
