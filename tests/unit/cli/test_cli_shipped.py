"""`regency docs` and `regency deploy-files`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from regency.cli.exits import Exit
from regency.cli.main import cli
from regency.cli.shipped import DEPLOYED

ROOT = Path(__file__).parents[3]
ALERTS = "prometheus/alerts.yml"


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words, prog_name="regency")


def test_all_pages_are_listed_with_their_titles() -> None:
    pages = {each["page"]: each["title"] for each in json.loads(run("docs", "-o", "json").stdout)}
    assert len(pages) == len(list((ROOT / "docs").rglob("*.md"))) + 1, "and README.md"
    assert pages["operate/runbook"] == "Runbook: when an alert fires"


@pytest.mark.parametrize("name", ["operate/runbook", "runbook", "docs/operate/runbook.md", "docs/operate/runbook"])
def test_a_page_is_printed_by_any_of_its_names(name: str) -> None:
    assert run("docs", name).stdout.strip() == (ROOT / "docs/operate/runbook.md").read_text("utf-8").strip()


def test_a_section_is_found_as_its_heading_is_written() -> None:
    assert run("docs", "README#Install").stdout.startswith("## Install\n")


def test_every_section_that_an_alert_names_is_printed() -> None:
    named = re.findall(r"runbook_url: (\S+)#(\S+)", (ROOT / "deploy" / ALERTS).read_text("utf-8"))
    assert len(named) > 20
    for page, anchor in named:
        done = run("docs", f"{page}#{anchor}")
        assert done.stdout.lower().startswith(f"### {anchor}"), done.output
        assert "**Repair**" in done.stdout
        assert done.stdout.count("\n### ") == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("runbok", "There is no page runbok. Did you mean runbook?"),
        ("", "There is no page . `regency docs` lists all pages."),
        ("runbook#nothing", "runbook has no section nothing."),
    ],
)
def test_a_page_or_section_that_is_not_there_is_said(name: str, said: str) -> None:
    done = run("docs", name)
    assert done.exit_code == Exit.FAILED
    assert said in done.stderr


def test_deploy_files_are_copied_once_and_kept_where_they_were_changed(tmp_path: Path) -> None:
    assert run("deploy-files", str(tmp_path)).exit_code == 0
    assert all((tmp_path / name).exists() for name in DEPLOYED)
    assert (tmp_path / ALERTS).read_bytes() == (ROOT / "deploy" / ALERTS).read_bytes()

    assert run("deploy-files", str(tmp_path)).exit_code == 0  # nothing differs
    (tmp_path / "server.properties").write_text("broker.id=7\n")
    (tmp_path / ALERTS).unlink()
    refused = run("deploy-files", str(tmp_path))
    assert refused.exit_code == Exit.REFUSED
    assert f"{tmp_path}/server.properties would be replaced" in refused.stderr
    assert not (tmp_path / ALERTS).exists()
    assert run("deploy-files", str(tmp_path), "--overwrite").exit_code == 0
    assert "broker.id=1" in (tmp_path / "server.properties").read_text()


def test_alerts_name_their_runbook_where_the_documents_are_published(tmp_path: Path) -> None:
    done = run("-o", "json", "deploy-files", str(tmp_path), "--docs-url", "https://wiki.example/docs/")
    assert ALERTS in json.loads(done.stdout)["files"]
    urls = re.findall(r"runbook_url: (.*)", (tmp_path / ALERTS).read_text())
    assert urls
    assert all(each.startswith("https://wiki.example/docs/operate/runbook-") for each in urls)
    assert run("deploy-files", str(tmp_path), "--docs-url", "wiki").exit_code == Exit.USAGE
