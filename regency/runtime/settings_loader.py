"""Reads a settings file, variables and the overrides of a command line into BrokerSettings; logs what has no effect.

Variables are named KAFKA_*, as images of Kafka take them: KAFKA_NUM_PARTITIONS is num.partitions.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from regency.model.settings import BrokerSettings, SettingsInvalid, parse_settings
from regency.model.settings.properties import parse_property_lines

logger = logging.getLogger(__name__)

PREFIX: Final = "KAFKA_"

_SPELLED: Final = {"_": ".", "__": "_", "___": "-"}
_NO_SETTINGS: Final = re.compile(
    r"KAFKA_(HEAP_OPTS|OPTS|JMX_.*|JVM_.*|GC_LOG_OPTS|LOG4J_.*|TOOLS_LOG4J_.*|DEBUG|HOME|VERSION|CLASSPATH|USER)"
)
"""What Kafka's scripts and images read themselves, about Java, its log and where it is installed."""

_PORT_OF_SERVICE: Final = re.compile(r"(KAFKA(?:_[A-Z0-9]+)*?)_PORT_([0-9]+)_(TCP|UDP|SCTP)")
_OF_SERVICE: Final = r"(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
_ADDRESS: Final = re.compile(r"(tcp|udp|sctp)://.+:[0-9]+")


class Variables(msgspec.Struct, frozen=True):
    """What the environment says. `names` has the variable of each key; `vain` those that say nothing here.

    `links`: those that Kubernetes makes of a service whose name begins with kafka, where it listens.
    """

    properties: dict[str, str]
    names: dict[str, str]
    vain: tuple[str, ...]
    links: tuple[str, ...] = ()


def read_variables(environment: Mapping[str, str]) -> Variables:
    """Keys and values of the variables that begin with KAFKA_: `_` is a dot, `__` an underscore, `___` a dash.

    Whether a key exists is not asked here. Names of variables are upper case, as in images of Kafka; others are left.
    """
    names: dict[str, str] = {}
    vain: list[str] = []
    links = service_links(environment)
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable == PREFIX or not variable.isupper() or variable in links:
            continue
        if _NO_SETTINGS.fullmatch(variable):
            vain.append(variable)
        else:
            names[key_of(variable)] = variable
    properties = {key: environment[variable].strip() for key, variable in names.items()}
    return Variables(properties, names, tuple(vain), tuple(sorted(links)))


def service_links(environment: Mapping[str, str]) -> frozenset[str]:
    """Variables that Kubernetes sets in every container for a service called kafka or kafka-something.

    A service is known by a port whose variables agree: KAFKA_PORT_9092_TCP=tcp://10.0.0.1:9092 and
    KAFKA_PORT_9092_TCP_ADDR=10.0.0.1. A KAFKA_PORT that was set to something else stays.
    """
    services = set()
    for variable, value in environment.items():
        if (found := _PORT_OF_SERVICE.fullmatch(variable)) is None:
            continue
        service, port, protocol = found.groups()
        address = environment.get(f"{variable}_ADDR", "")
        host = f"[{address}]" if ":" in address else address
        if address and value == f"{protocol.lower()}://{host}:{port}":
            services.add(service)
    links = set()
    for service in services:
        name = re.compile(f"{service}_{_OF_SERVICE}")
        links |= {variable for variable in environment if name.fullmatch(variable)}
        if _ADDRESS.fullmatch(environment.get(f"{service}_PORT", "")):
            links.add(f"{service}_PORT")
    return frozenset(links)


def key_of(variable: str) -> str:
    """The key that a variable sets."""
    word = variable.removeprefix(PREFIX).lower()
    return re.sub("_{1,3}", lambda found: _SPELLED[found[0]], word)


def load_settings(
    path: Path | None, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> BrokerSettings:
    """Settings of the file at `path` (None: of nothing), with each `key=value` of `overrides` in place of its key.

    What the variables KAFKA_* of `environment` say (None: nothing) counts before the file, and after `overrides`.

    Raises SettingsInvalid with every problem, or where the file is missing, unreadable or not UTF-8.
    """
    properties: dict[str, str] = {}
    origins: dict[str, str] = {}
    repeated: list[str] = []
    source = str(path) if path is not None else "the command line"
    if path is not None:
        for entry in parse_property_lines(_read(path), source):
            if entry.key in properties:
                repeated.append(f"{entry.key} stands in {origins[entry.key]} and line {entry.line}; the latter counts")
            properties[entry.key] = entry.value
            origins[entry.key] = f"line {entry.line}"
    if environment is not None:
        variables = read_variables(environment)
        properties.update(variables.properties)
        origins.update(variables.names)
        repeated += [f"{name} is about Java's Kafka and has no effect" for name in variables.vain]
        if variables.links:
            logger.info(
                "passed over, since Kubernetes sets them for services (enableServiceLinks: false keeps them away): %s",
                ", ".join(variables.links),
            )
        source = f"{source} and variables such as KAFKA_BROKER_ID"
    for override in overrides:
        key, value = _split(override)
        properties[key] = value
        origins[key] = "--set"
    settings = parse_settings(properties, source=source, origins=origins)
    for warning in (*repeated, *settings.warnings):
        logger.warning("%s: %s", source, warning)
    return settings


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise SettingsInvalid(str(path), ["there is no such file; name a server.properties"]) from error
    except OSError as error:
        raise SettingsInvalid(str(path), [f"cannot be read: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SettingsInvalid(str(path), [f"line {line}: byte {error.start} is not UTF-8"]) from error


def _split(override: str) -> tuple[str, str]:
    key, equals, value = override.partition("=")
    if not equals or not key.strip():
        raise SettingsInvalid("the command line", [f"--set {override[:200]}: expected key=value"])
    return key.strip(), value.strip()
