"""Options `kafka.*` of a read: settings of the client, in Kafka's names. What Spark forbids is forbidden here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from regency.clients.settings import (
    BOOTSTRAP_SERVERS,
    ClientSettings,
    SettingRefused,
    client_settings,
    is_idle,
)
from regency.pipeline.errors import PipelineOptionInvalid

PREFIX: Final = "kafka."

_COLUMNS = "Columns key and value are bytes; decode them with functions of Spark, such as CAST(value AS STRING)."
FORBIDDEN: Final = {
    "auto.offset.reset": (
        "where to begin is not the client's choice",
        "Set startingOffsets to earliest or latest; what to do about lost records is failOnDataLoss.",
    ),
    "key.deserializer": ("keys are always read as bytes", _COLUMNS),
    "value.deserializer": ("values are always read as bytes", _COLUMNS),
    "enable.auto.commit": (
        "offsets are kept in the checkpoint of the query, none are committed",
        "Remove it; progress is in the query's checkpoint and its progress reports.",
    ),
    "interceptor.classes": ("there is no Java client that could call interceptors", "Remove it."),
}
"""Settings that no read may have, with why and what to do, by name without the prefix."""
_SECURITY: Final = ("sasl.", "ssl.")
_PLAIN: Final = "Remove it, or reach the brokers over a network that needs no encryption, such as a tunnel."
_OF_A_GROUP: Final = ("group.id", "group.instance.id")


def read_client_settings(options: Mapping[str, str]) -> ClientSettings:
    """Settings of the options `kafka.*` among `options`, whose names are in lower case.

    Raises PipelineOptionInvalid for what is missing, forbidden, not known, malformed, or promises what there is not.
    """
    given = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
    if BOOTSTRAP_SERVERS not in given:
        raise PipelineOptionInvalid(
            PREFIX + BOOTSTRAP_SERVERS, "it is missing", hint="Name brokers of the cluster, such as localhost:9092."
        )
    for name, (reason, hint) in FORBIDDEN.items():
        if name in given:
            raise PipelineOptionInvalid(PREFIX + name, reason, hint=hint)
    for name in given:
        if name.startswith(_SECURITY):
            raise PipelineOptionInvalid(PREFIX + name, "there is no TLS and no SASL here", hint=_PLAIN)
    try:
        return client_settings(given)
    except SettingRefused as error:
        reason = error.message.removeprefix(f"{error.name}: ").rstrip(".")
        raise PipelineOptionInvalid(PREFIX + error.name, reason, hint=error.hint or _hint(error.name)) from error


def warnings_about(options: Mapping[str, str]) -> list[str]:
    """What to tell about options `kafka.*` that are taken and do nothing."""
    given = [name.removeprefix(PREFIX) for name in options if name.startswith(PREFIX)]
    idle = sorted(name for name in given if is_idle(name) and name not in _OF_A_GROUP)
    found = [f"Options without effect here: {', '.join(PREFIX + name for name in idle)}."] if idle else []
    if any(name in given for name in _OF_A_GROUP):
        found.append(
            "Option kafka.group.id has no effect: partitions are assigned by Spark alone, so there is no group; several"
            " queries may name the same."
        )
    return found


def _hint(name: str) -> str:
    return _PLAIN if name == "security.protocol" else "See docs/use/spark.md for the settings that reading knows."
