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


class Variables(msgspec.Struct, frozen=True):
    """What the environment says. `names` has the variable of each key; `vain` those that say nothing here."""

    properties: dict[str, str]
    names: dict[str, str]
    vain: tuple[str, ...]


def read_variables(environment: Mapping[str, str]) -> Variables:
    """Keys and values of the variables that begin with KAFKA_: `_` is a dot, `__` an underscore, `___` a dash.

    Whether a key exists is not asked here. Names of variables are upper case, as in images of Kafka; others are left.
    """
    names: dict[str, str] = {}
    vain: list[str] = []
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable == PREFIX or not variable.isupper():
            continue
        if _NO_SETTINGS.fullmatch(variable):
            vain.append(variable)
        else:
            names[key_of(variable)] = variable
    return Variables({key: environment[variable].strip() for key, variable in names.items()}, names, tuple(vain))


def key_of(variable: str) -> str:
    """The key that a variable sets."""
    word = variable.removeprefix(PREFIX).lower()
    return re.sub("_{1,3}", lambda found: _SPELLED[found[0]], word)
