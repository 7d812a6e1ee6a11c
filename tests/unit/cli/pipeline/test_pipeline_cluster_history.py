"""What `regency pipeline cluster-history` refuses before Spark is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from regency.cli.main import cli


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
