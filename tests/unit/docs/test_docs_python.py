"""What docs/use/python.md shows of `regency` is well typed for its readers, whose type checkers see the package."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "use" / "python.md"
EXAMPLES = [
    block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL) if "from regency" in block
]


@pytest.mark.timeout(300)
def test_examples_pass_a_strict_type_checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(EXAMPLES) >= 2
    for number, text in enumerate(EXAMPLES):
        typed = text.replace("def cluster():", "def cluster() -> Iterator[Cluster]:")
        imports = "from collections.abc import Iterator\n" if typed != text else ""
        (tmp_path / f"example{number}.py").write_text(imports + typed)
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    options = [
        "--strict",
        "--ignore-missing-imports",
        "--follow-imports=silent",
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    told, wrong, status = api.run([*options, "--python-executable", sys.executable, str(tmp_path)])
    assert status == 0, told + wrong
