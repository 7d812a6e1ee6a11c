"""What `regency pipeline cluster-history` refuses before Spark is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from regency.cli.main import cli
from regency.cli.pipeline.cluster_history import told
from regency.pipeline.jobs.cluster_history.summary import Summary


def test_without_matplotlib_it_says_what_to_install_before_it_asks_anybody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as where it is not installed, or broken
    words = [
        "--bootstrap-server",
        "localhost:1",
        "-o",
        "json",
        "pipeline",
        "cluster-history",
        "--to",
        str(tmp_path / "h"),
    ]
    done = CliRunner().invoke(cli, words, prog_name="regency")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "Error: The report needs matplotlib:" in done.stderr
    assert "Install it with: pip install 'regency[pipeline]'" in done.stderr
    assert not (tmp_path / "h").exists()


def test_a_file_of_another_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl.bak").touch()
    words = ["pipeline", "cluster-history", str(tmp_path / "x.jsonl.bak"), "--to", str(tmp_path / "h")]
    done = CliRunner().invoke(cli, words, prog_name="regency")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "x.jsonl.bak: only files *.jsonl and *.jsonl.gz are read; rename it." in done.stderr


def test_the_summary_counts_one_as_one() -> None:
    summary = Summary(
        tables="/h",
        report="/h/report.html",
        begin_ms=0,
        end_ms=9,
        origins=1,
        decisions=1,
        duplicates=0,
        malformed=0,
        partitions=1,
        leaderless_ms=1500,
        leaderless_intervals=1,
        leaderless_now=0,
        failovers=1,
        elections=1,
        unclean_elections=0,
        isr_absences=0,
        problems=[],
    )
    assert told(summary) == (
        "1 decision about 1 partition: 1 time without a leader, 1.5 s in all, 0 still so; 1 failover, 1 election; "
        "report: /h/report.html"
    )
