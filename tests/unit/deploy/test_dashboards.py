"""The dashboards that are committed: current, complete, tidy, and free of what only one Grafana knows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from regency_dashboards.__main__ import TARGET, dashboards, main

from regency.cli.main import cli
from regency.runtime.metrics.table import ALL_METRICS

BOARDS = {path.name: json.loads(path.read_text()) for path in sorted(TARGET.glob("*.json"))}
WIDTH = 24
OF_OTHERS = {"up", "ALERTS", "process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"}
"""Of Prometheus itself, and of prometheus_client."""
RUNBOOK = re.compile(r"runbook, (\w+)")

each_board = pytest.mark.parametrize("name", BOARDS)


def panels(name: str) -> Iterator[dict[str, Any]]:
    yield from (panel for panel in BOARDS[name]["panels"] if panel["type"] != "row")


def test_the_committed_json_is_what_the_generator_makes_now(tmp_path: Path) -> None:
    (tmp_path / "gone.json").write_text("{}")

    assert main([str(tmp_path)]) == 0

    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == dashboards()
    committed = {path.name: path.read_text() for path in TARGET.iterdir()}
    assert committed == made, "run ./dev dashboards and commit deploy/grafana/dashboards"


@each_board
def test_every_panel_says_what_it_is_and_what_is_good(name: str) -> None:
    for panel in panels(name):
        assert re.search(r"\b[Gg]ood\b", panel["description"]), panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"].get("unit") or panel["type"] == "state-timeline", panel["title"]


@each_board
def test_commands_and_alerts_that_descriptions_name_exist(name: str) -> None:
    alerts = (TARGET.parents[1] / "prometheus" / "alerts.yml").read_text()
    for panel in panels(name):
        for command in re.findall(r"`regency ([^`]+)`", panel["description"]):
            assert_command(command.split())
        for alert in RUNBOOK.findall(panel["description"]):
            assert f"- alert: {alert}\n" in alerts


def assert_command(words: list[str]) -> None:
    here: click.Command = cli
    for word in words:
        assert isinstance(here, click.Group), words
        found = here.get_command(click.Context(here), word)
        assert found is not None, words
        here = found


@each_board
def test_panels_lie_on_the_grid_and_not_on_each_other(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARDS[name]["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= WIDTH, panel["title"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    numbers = [panel["id"] for panel in BOARDS[name]["panels"]]
    assert len(set(numbers)) == len(numbers)


@each_board
def test_data_comes_from_the_source_that_is_chosen_and_links_lead_to_the_other_boards(name: str) -> None:
    board = BOARDS[name]
    uids = {found["uid"] for found in walk(board, "datasource")}
    assert uids == {"${datasource}"}
    kinds = [(variable["name"], variable["type"]) for variable in board["templating"]["list"]]
    assert kinds[:2] == [("datasource", "datasource"), ("cluster", "query")]
    (link,) = board["links"]
    assert (link["tags"], link["includeVars"], link["keepTime"]) == (["regency"], True, True)
    assert "regency" in board["tags"]


def walk(value: Any, key: str) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from (found for name, found in value.items() if name == key)
        for found in value.values():
            yield from walk(found, key)
    elif isinstance(value, list):
        for found in value:
            yield from walk(found, key)


@each_board
def test_expressions_ask_for_metrics_that_there_are(name: str) -> None:
    known = {sample for metric in ALL_METRICS for sample in metric.samples} | OF_OTHERS
    asked = [target["expr"] for panel in panels(name) for target in panel["targets"]]
    assert {unknown for expr in asked for unknown in metrics(expr) - known} == set()


def metrics(expr: str) -> set[str]:
    """Names before a brace."""
    return set(re.findall(r"([A-Za-z_:][A-Za-z0-9_:]*)\{", expr))
