"""How an address of a listener is spelled in settings and znodes: LISTENER://host:port, IPv6 hosts in brackets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from regency.model.facts import Endpoint

PLAINTEXT: Final = "PLAINTEXT"
"""Listener name and security protocol without encryption or authentication."""

_ENDPOINT = re.compile(r"([^:/,\s]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^:/,\s\[\]]*)):([0-9]{1,5})")
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, never bound


def format_endpoint(endpoint: Endpoint) -> str:
    """`LISTENER://host:port`, an IPv6 address in brackets."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def parse_endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    """Read `LISTENER://host:port`; the protocol is that of the listener's name in `protocols`, else the name itself.

    Names become upper case, as Kafka does. The host may be empty and the port 0 to 65535. Raises ValueError.
    """
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match[4]) > 65535:
        raise ValueError(f"{text[:300]!r} is not LISTENER://host:port with a port up to 65535")
    listener = match[1].upper()
    return Endpoint(listener, match[2] or match[3] or "", int(match[4]), protocols.get(listener, listener))


def is_wildcard(host: str) -> bool:
    """Whether a socket bound to this host listens on every interface: an address that no client can connect to."""
    return host in _WILDCARDS
