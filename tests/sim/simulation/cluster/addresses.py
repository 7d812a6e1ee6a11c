"""Hosts and ports of a simulated cluster: an agent and its controller share a host, as they share a machine."""

from __future__ import annotations

from regency.model.facts import Endpoint
from regency.model.ids import BrokerId

KAFKA = 9092
CONTROL = 9093
CONTROLLER = 9094
CLIENTS = "clients"


def host_of(broker: BrokerId) -> str:
    return f"h{broker}"


def broker_at(address: str) -> BrokerId:
    return BrokerId(int(address.partition(":")[0].removeprefix("h")))


def endpoints_of(broker: BrokerId) -> tuple[Endpoint, ...]:
    host = host_of(broker)
    return (
        Endpoint("PLAINTEXT", host, KAFKA),
        Endpoint("CONTROL", host, CONTROL),
        Endpoint("CONTROLLER", host, CONTROLLER),
    )
