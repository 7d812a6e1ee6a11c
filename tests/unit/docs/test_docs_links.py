"""Every link between the documents leads somewhere, and every page that code and settings name is there."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("broker_agent", "controller", "deploy", "protos", "pyspark_regency", "regency", "tests")
SOURCES = {".json", ".properties", ".proto", ".py", ".service", ".yml"}


def anchors(text: str) -> set[str]:
    """What headings can be linked to by, as GitHub names them: a heading that comes again gets a number."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def leads(target: Path, anchor: str) -> bool:
    return target.exists() and (not anchor or anchor in anchors(target.read_text("utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_the_documents_lead_somewhere(page):
    found = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text("utf-8"))
    broken = [f"{to}#{at}" for to, at in found if not leads((page.parent / to).resolve() if to else page, at)]
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_that_a_document_names_without_a_link_are_there(page):
    named = re.findall(r"(?<![/\w.])docs/[\w/-]+\.md", page.read_text("utf-8"))
    assert [each for each in named if not (ROOT / each).exists()] == []


@pytest.mark.parametrize("name", ["architecture", "map", "recipes"])
def test_files_that_a_page_for_maintainers_names_are_there(name):
    text = (ROOT / "docs" / "internals" / f"{name}.md").read_text("utf-8")
    named = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w/.-]+)`", text)
    assert named
    assert [each for each in named if not (ROOT / each).exists()] == []
    there = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    assert set(re.findall(r"(?<![/\w.])(\w+\.py)\b", text)) - there == set()


@pytest.mark.timeout(30)  # it reads some thousand files
def test_pages_that_code_and_settings_name_are_there():
    broken = []
    for path in [each for folder in FOLDERS for each in (ROOT / folder).rglob("*") if each.suffix in SOURCES]:
        for page, anchor in re.findall(r"\b(docs/[\w/-]+\.md)(?:#([\w-]+))?", path.read_text("utf-8")):
            if not leads(ROOT / page, anchor):
                broken.append(f"{path.relative_to(ROOT)}: {page}#{anchor}")
    assert broken == []


def test_a_page_and_an_anchor_that_are_not_there_are_found(tmp_path):
    page = tmp_path / "p.md"
    page.write_text("# A title: of *words*\n\n## Twice\n\n## Twice\n\n```\n# no heading\n```\n", "utf-8")
    assert anchors(page.read_text("utf-8")) == {"a-title-of-words", "twice", "twice-1"}
    assert leads(page, "twice-1")
    assert not leads(page, "no-heading")
    assert not leads(tmp_path / "q.md", "")
