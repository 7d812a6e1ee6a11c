"""Service Admin of protos/admin.proto: the methods of all subjects, in one table."""

from __future__ import annotations

from typing import Final

from regency.controller.desk import Desk
from regency.runtime.grpc_servers import MethodHandler, ServiceHandler, service

SERVICE: Final = "regency.admin.v1.Admin"


def admin_service(desk: Desk) -> ServiceHandler:
    """The service for a GrpcServer."""
    del desk
    methods: dict[str, MethodHandler] = {}
    return service(SERVICE, methods)
