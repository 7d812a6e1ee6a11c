"""Reads a settings file, variables and the overrides of a command line into BrokerSettings; logs what has no effect."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from regency.model.settings import BrokerSettings, SettingsInvalid, parse_settings
from regency.model.settings.properties import parse_property_lines
from regency.runtime.settings_environment import read_variables

logger = logging.getLogger(__name__)


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
        origins[key] = "--override"
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
        raise SettingsInvalid("the command line", [f"--override {override[:200]}: expected key=value"])
    return key.strip(), value.strip()
