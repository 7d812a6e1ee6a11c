"""The tables of docs/reference/metrics.md are those of the code, and what differs is found."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from regency.runtime.metrics.table import ALL_METRICS

MAKER = Path(__file__).with_name("metrics_tables.py")


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("metrics_tables", MAKER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(tables: ModuleType) -> str:
    return tables.PAGE.read_text("utf-8")


def test_the_tables_are_current(tables, page):
    assert tables.rendered(page) == page, "run .venv/bin/python tests/unit/metrics/metrics_tables.py"


def test_every_metric_has_one_row(tables):
    rows = [
        row.split("`")[1].partition("{")[0] for each in tables.TABLES.values() for row in list(tables.table(each))[2:]
    ]
    assert sorted(rows) == sorted(metric.exported for metric in ALL_METRICS)


@pytest.mark.parametrize("damage", ["lacks", "says something else of"])
def test_a_table_that_lacks_a_metric_or_says_something_else_of_it_is_found(tables, page, damage):
    row = next(line for line in page.splitlines() if "activecontrollercount" in line and line.startswith("| `"))
    damaged = page.replace(f"{row}\n", "") if damage == "lacks" else page.replace(row, row.replace("gauge", "counter"))
    assert damaged != page
    assert tables.rendered(damaged) == page


def test_a_missing_table_is_an_error(tables, page):
    with pytest.raises(ValueError, match="expected once each"):
        tables.rendered(page.replace("<!-- metrics: controller -->", ""))
