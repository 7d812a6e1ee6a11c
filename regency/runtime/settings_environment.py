"""Settings in variables named KAFKA_*, as images of Kafka take them: KAFKA_NUM_PARTITIONS is num.partitions. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

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
