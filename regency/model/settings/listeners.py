"""Reads the keys about listeners, which only make sense together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from regency.model.facts import PLAINTEXT, Endpoint, is_wildcard, parse_endpoint
from regency.model.settings.values import Problems, nearest

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_DEFAULT_LISTENERS: Final = ("PLAINTEXT://:9092",)
_NAME_CHARACTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


class Listeners(msgspec.Struct, frozen=True):
    """Attributes of BrokerSettings under their names."""

    listeners: tuple[Endpoint, ...]
    control_listeners: tuple[Endpoint, ...]
    advertised_listeners: tuple[Endpoint, ...]
    inter_broker_listener_name: str
    control_plane_listener_name: str
    controller_listener_name: str


def read_listeners(values: Mapping[str, object], problems: Problems) -> Listeners:
    """What the values of the keys about listeners say together; problems are added to `problems`."""
    control = _name(values, "control.plane.listener.name", "CONTROL")
    controller = _name(values, "regency.controller.listener.name", "CONTROLLER")
    if control == controller:
        key = "control.plane.listener.name"
        key = key if key in values else "regency.controller.listener.name"
        problems.add(key, f"agent and controller need listeners of their own, and both are named {control}")
    protocols = _protocols(values, problems)
    all_protocols = {control: PLAINTEXT, controller: PLAINTEXT, **protocols}
    bound = _endpoints(values, "listeners", all_protocols, problems, _DEFAULT_LISTENERS)
    _check_ports(bound, problems)
    kafka = tuple(end for end in bound if end.listener not in (control, controller))
    if not kafka and bound:
        problems.add("listeners", "no listener for Kafka's clients; add one, such as PLAINTEXT://:9092")
    advertised = _endpoints(values, "advertised.listeners", all_protocols, problems, ())
    names = [end.listener for end in kafka]
    for end in advertised:
        if names and end.listener not in (*names, control, controller):
            hint = nearest(end.listener, names)
            problems.add("advertised.listeners", f"{end.listener} is not among the listeners {_list(names)}{hint}")
        if is_wildcard(end.host):
            problems.add("advertised.listeners", f"{end}: no client can connect to this host; name one")
    return Listeners(
        kafka,
        tuple(end for end in bound if end.listener in (control, controller)),
        advertised,
        _inter_broker(values, names, problems),
        control,
        controller,
    )


def _name(values: Mapping[str, object], key: str, default: str) -> str:
    value = values.get(key)
    return value.upper() if isinstance(value, str) else default


def _texts(values: Mapping[str, object], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    value = values.get(key)
    return tuple(str(element) for element in value) if isinstance(value, tuple) else default


def _list(names: list[str]) -> str:
    return ", ".join(names) or "(none)"


def _protocols(values: Mapping[str, object], problems: Problems) -> dict[str, str]:
    """Protocol by listener name; by default every protocol's own name stands for it."""
    key = "listener.security.protocol.map"
    entries = _texts(values, key, ())
    if not entries:
        return {protocol: protocol for protocol in _PROTOCOLS}
    protocols: dict[str, str] = {}
    for entry in entries:
        name, colon, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not colon or not name or protocol not in _PROTOCOLS:
            problems.add(key, f"{entry!r} is not NAME:PROTOCOL with a protocol of {', '.join(_PROTOCOLS)}")
        elif name in protocols:
            problems.add(key, f"{name} stands there twice")
        else:
            protocols[name] = protocol
    return protocols


def _endpoints(
    values: Mapping[str, object], key: str, protocols: Mapping[str, str], problems: Problems, default: tuple[str, ...]
) -> tuple[Endpoint, ...]:
    endpoints: list[Endpoint] = []
    for text in _texts(values, key, default):
        try:
            endpoint = parse_endpoint(text, protocols)
        except ValueError as error:
            problems.add(key, str(error))
            continue
        if why := _refused(endpoint, protocols):
            problems.add(key, f"{text}: {why}")
        elif any(endpoint.listener == other.listener for other in endpoints):
            problems.add(key, f"listener {endpoint.listener} stands there twice")
        else:
            endpoints.append(endpoint)
    return tuple(endpoints)


def _refused(endpoint: Endpoint, protocols: Mapping[str, str]) -> str:
    """Why an endpoint cannot be used; empty where it can."""
    if not _NAME_CHARACTERS.issuperset(endpoint.listener):
        return "a listener's name consists of letters, digits, _, - and ."
    if endpoint.listener not in protocols:
        return f"its protocol is not known; add {endpoint.listener}:PLAINTEXT to listener.security.protocol.map"
    if endpoint.security_protocol != PLAINTEXT:
        return f"{endpoint.security_protocol} is not supported yet, only PLAINTEXT is (no TLS, no SASL)"
    return ""


def _check_ports(bound: tuple[Endpoint, ...], problems: Problems) -> None:
    owners: dict[int, str] = {}
    for endpoint in bound:
        other = owners.setdefault(endpoint.port, endpoint.listener)
        if endpoint.port and other != endpoint.listener:
            problems.add("listeners", f"{other} and {endpoint.listener} both have port {endpoint.port}")


def _inter_broker(values: Mapping[str, object], names: list[str], problems: Problems) -> str:
    by_name, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    if by_name in values and by_protocol in values:
        problems.add(by_protocol, f"stands beside {by_name}; keep one of them")
    if by_name in values:
        name = _name(values, by_name, PLAINTEXT)
        if names and name not in names:
            problems.add(by_name, f"expected one of the listeners {_list(names)}{nearest(name, names)}")
        return name
    name = _name(values, by_protocol, PLAINTEXT)
    if name != PLAINTEXT:
        problems.add(by_protocol, f"{name} is not supported yet, only PLAINTEXT is (no TLS, no SASL)")
    elif names and name not in names:
        problems.add_missing(by_name, f"say which of the listeners {_list(names)} other brokers fetch from")
    return name
