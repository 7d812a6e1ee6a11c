"""The expressions of every panel of every dashboard, as Grafana would send them with nothing chosen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from compose_test.engine import ROOT

DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"
RATE_INTERVAL = "1m"
"""What Grafana makes of $__rate_interval where targets are scraped every 10 s: four scrapes, rounded up here."""
EVERYTHING = ".*"
"""What a variable with `All` chosen stands for."""
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)(?::\w+)?\}")


class Query(msgspec.Struct, frozen=True):
    """One expression of a panel. `instant`: the panel shows the newest value only."""

    dashboard: str
    panel: str
    expression: str
    instant: bool


def queries(directory: Path = DASHBOARDS) -> list[Query]:
    """All there are. Raises ValueError for a variable that no dashboard defines."""
    return [query for file in sorted(directory.glob("*.json")) for query in _of_dashboard(json.loads(file.read_text()))]


def _of_dashboard(dashboard: Mapping[str, Any]) -> Iterator[Query]:
    known = {str(variable["name"]): EVERYTHING for variable in dashboard.get("templating", {}).get("list", [])}
    known |= {"__rate_interval": RATE_INTERVAL, "__interval": "10s", "__range": "15m"}
    for panel in _panels(dashboard.get("panels", [])):
        for target in panel.get("targets", []):
            if expression := target.get("expr"):
                filled = _fill(expression, known, str(panel["title"]))
                yield Query(str(dashboard["title"]), str(panel["title"]), filled, bool(target.get("instant")))


def _panels(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in panels:
        yield panel
        yield from _panels(panel.get("panels", []))


def _fill(expression: str, known: Mapping[str, str], panel: str) -> str:
    unknown = {found[1] or found[2] for found in _VARIABLE.finditer(expression)} - known.keys()
    if unknown:
        raise ValueError(f"panel {panel}: nobody defines the variable {min(unknown)}")
    return _VARIABLE.sub(lambda found: known[found[1] or found[2]], expression)
