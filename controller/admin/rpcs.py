"""Service Admin of protos/admin.proto: the methods of all subjects, in one table."""

from __future__ import annotations

from typing import Final

from regency.controller.admin import configs as admin_configs
from regency.controller.admin import controller as admin_controller
from regency.controller.admin import elections as admin_elections
from regency.controller.admin import partitions as admin_partitions
from regency.controller.admin import reassignments as admin_reassignments
from regency.controller.admin import topics as admin_topics
from regency.controller.request_gate import RequestGate
from regency.runtime.grpc.servers import MethodHandler, ServiceHandler, service

SERVICE: Final = "regency.admin.v1.Admin"

SUBJECTS: Final = (
    admin_topics,
    admin_partitions,
    admin_configs,
    admin_controller,
    admin_elections,
    admin_reassignments,
)
"""Modules with a `methods(gate)` each."""


def admin_service(gate: RequestGate) -> ServiceHandler:
    """The service for a GrpcServer."""
    methods: dict[str, MethodHandler] = {}
    for subject in SUBJECTS:
        methods.update(subject.methods(gate))
    return service(SERVICE, methods)
