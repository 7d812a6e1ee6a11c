"""Service Admin of protos/admin.proto: the methods of all subjects, in one table."""

from __future__ import annotations

from typing import Final

from regency.controller import (
    admin_configs,
    admin_controller,
    admin_elections,
    admin_partitions,
    admin_reassignments,
    admin_topics,
)
from regency.controller.desk import Desk
from regency.runtime.grpc_servers import MethodHandler, ServiceHandler, service

SERVICE: Final = "regency.admin.v1.Admin"

SUBJECTS: Final = (
    admin_topics,
    admin_partitions,
    admin_configs,
    admin_controller,
    admin_elections,
    admin_reassignments,
)
"""Modules with a `methods(desk)` each."""


def admin_service(desk: Desk) -> ServiceHandler:
    """The service for a GrpcServer."""
    methods: dict[str, MethodHandler] = {}
    for subject in SUBJECTS:
        methods.update(subject.methods(desk))
    return service(SERVICE, methods)
