"""docs/operate/runbook-*.md have a section for every alert, under the anchor it links to, and for no other."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[3]
OPERATE = ROOT / "docs" / "operate"
RUNBOOK = {page.name: page.read_text("utf-8") for page in sorted(OPERATE.glob("runbook-*.md"))}
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
BLOCKS = ROOT / "tests" / "integration" / "docs" / "blocks.py"
PARTS = ("Meaning", "Causes", "Check", "Repair", "Worry")


def sections(text: str) -> dict[str, str]:
    """What stands below each heading of an alert, by its name."""
    found = re.split(r"^### (\w+)$", text, flags=re.MULTILINE)[1:]
    return {
        name: re.split(r"^## ", body, flags=re.MULTILINE)[0] for name, body in zip(found[::2], found[1::2], strict=True)
    }


@pytest.fixture(scope="module")
def runbook() -> dict[str, str]:
    return {name: body for text in RUNBOOK.values() for name, body in sections(text).items()}


@pytest.fixture(scope="module")
def alerts() -> dict[str, dict[str, object]]:
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def test_every_alert_has_its_section_and_every_section_its_alert(runbook, alerts):
    assert sorted(runbook) == sorted(alerts)
    listed = re.findall(r"\[(\w+)\]\(runbook-", (OPERATE / "runbook.md").read_text("utf-8"))
    assert sorted(listed) == sorted(alerts)


def test_every_alert_links_to_its_section(alerts):
    for name, rule in alerts.items():
        page = next(page for page, text in RUNBOOK.items() if f"### {name}\n" in text)
        assert rule["annotations"]["runbook_url"] == f"docs/operate/{page}#{name.lower()}"


def test_every_section_says_what_it_means_why_how_to_look_how_to_repair_and_when_to_worry(runbook):
    assert len(runbook) > 20
    for name, text in runbook.items():
        told = re.findall(r"^\*\*(\w+)\*\*", text, flags=re.MULTILINE)
        assert told == list(PARTS), name
        assert "```console" in text, f"{name} has nothing to type"


def test_no_alert_has_two_sections():
    headings = re.findall(r"^### (.+)$", "\n".join(RUNBOOK.values()), flags=re.MULTILINE)
    assert len(headings) == len(set(headings))


@pytest.fixture(scope="module")
def blocks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("document_blocks_of_unit_tests", BLOCKS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_commands_states_and_statuses_are_read(blocks, tmp_path):
    page = tmp_path / "p.md"
    page.write_text(
        "Text\n\n<!-- run: calm -->\n```console\n$ a b   # exit 3\nprinted\n$ c # no status\n```\n\n"
        "<!-- not run: because -->\n```console\n$ d\n```\n",
        "utf-8",
    )
    [calm, other] = blocks.commands_of(page)
    assert [(each.text, each.status, each.scenario, each.where) for each in calm] == [
        ("a b", 3, "calm", "p.md:5"),
        ("c # no status", 0, "calm", "p.md:7"),
    ]
    assert [(each.text, each.scenario, each.why) for each in other] == [("d", None, "because")]


@pytest.mark.parametrize(
    "text",
    [
        "Text\n```console\n$ a\n```\n",
        "<!-- run: calm -->\n\n```console\n$ a\n```\n",
        "<!-- run: calm -->\n```console\nonly output\n```\n",
        "<!-- run: calm -->\n```console\n$ a\n",
        "<!-- walk: calm -->\n```console\n$ a\n```\n",
    ],
)
def test_a_block_that_nobody_could_run_is_found(blocks, tmp_path, text):
    page = tmp_path / "p.md"
    page.write_text(text, "utf-8")
    with pytest.raises(blocks.BlocksMalformed, match=r"p\.md"):
        blocks.commands_of(page)


def test_few_blocks_are_not_run(blocks):
    pages = [page for page in OPERATE.glob("*.md") if "run: " in page.read_text("utf-8")]
    not_run = [block for page in pages for block in blocks.commands_of(page)]
    assert sum(block[0].scenario is None for block in not_run) <= 6
