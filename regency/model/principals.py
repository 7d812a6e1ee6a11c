"""Who asks, and from where: what a decision about a client's request may look at."""

from __future__ import annotations

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """Who a client has proved to be, in Kafka's terms."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""A client on a listener that asks for no proof."""


class RequestContext(NamedTuple):
    """Where a request comes from. `client_id` and `client_address` are the client's own word and its IP address."""

    principal: Principal
    listener: str
    client_address: str
    client_id: str

    def __str__(self) -> str:
        return f"{self.principal}, client {self.client_id!r} at {self.client_address} on {self.listener}"
