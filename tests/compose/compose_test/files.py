"""docker-compose.yml and deploy/Dockerfile as documents, for tests that need no engine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from regency.model.settings import BrokerSettings
from regency.runtime.settings_loader import load_settings

ROOT = Path(__file__).parents[3]
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


def compose(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The document, with variables as `environment` has them, else with their defaults."""
    text = (ROOT / "docker-compose.yml").read_text()
    filled = _VARIABLE.sub(lambda found: (environment or {}).get(found[1], found[2]), text)
    assert "${" not in filled, "a variable without a default"
    document = yaml.safe_load(filled)
    assert isinstance(document, dict)
    return document


def services(environment: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    found = compose(environment)["services"]
    assert isinstance(found, dict)
    return found


def agents() -> dict[str, dict[str, Any]]:
    return {name: service for name, service in services().items() if name.startswith("agent-")}


def settings(service: Mapping[str, Any]) -> BrokerSettings:
    """What an agent of this service runs with: the image's file, then its variables."""
    return load_settings(ROOT / "deploy" / "docker.properties", [], service["environment"])


def mounts(service: Mapping[str, Any]) -> dict[str, str]:
    """What is mounted where: source by path in the container."""
    return {each.split(":")[1]: each.split(":")[0] for each in service.get("volumes", [])}


def published(service: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Address and port on the host, port in the container."""
    parts = [port.split(":") for port in service.get("ports", [])]
    return [(address, int(outside), int(inside)) for address, outside, inside in parts]


def seconds(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+)([sm])", text).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60}[unit]


def dockerfile() -> list[list[str]]:
    """The instructions of deploy/Dockerfile, as words; comments are left out and lines that go on are one."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / "deploy" / "Dockerfile").read_text()).replace("\\\n", " ")
    return [
        shlex.split(line.replace("[", "").replace("]", "").replace('", "', '" "')) for line in text.splitlines() if line
    ]


def instructions(name: str) -> list[list[str]]:
    return [words[1:] for words in dockerfile() if words[0] == name]
