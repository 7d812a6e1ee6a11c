"""The tables of settings in docs/reference/settings.md are those of the code, and what differs is found."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from regency.model.settings.broker import KEYS
from regency.model.settings.keys import TOPIC_KEYS

MAKER = Path(__file__).with_name("settings_tables.py")


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("settings_tables", MAKER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(tables: ModuleType) -> str:
    return tables.PAGE.read_text("utf-8")


def test_the_tables_are_current(tables, page):
    assert tables.rendered(page) == page, "run .venv/bin/python tests/unit/docs/settings_tables.py"


def test_every_key_has_its_row_and_every_row_its_cells(tables):
    for table, keys in ((tables.broker_table, KEYS), (tables.topic_table, TOPIC_KEYS)):
        head, _, *rows = list(table())
        assert [row.split("`")[1] for row in rows] == list(keys)
        assert {row.count(" | ") for row in rows} <= {head.count(" | ")}


def test_a_default_that_the_code_does_not_have_is_found(tables, page):
    wrong = page.replace("| `zookeeper.session.timeout.ms` | `18000` |", "| `zookeeper.session.timeout.ms` | `6000` |")
    assert wrong != page
    assert tables.rendered(wrong) == page


def test_a_table_that_is_missing_is_found(tables, page):
    with pytest.raises(ValueError, match="topic"):
        tables.rendered(page.replace("<!-- settings: topic -->", ""))
