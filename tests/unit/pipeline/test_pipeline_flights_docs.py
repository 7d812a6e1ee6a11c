"""The example of docs/use/spark-flights.md that needs neither Spark nor a cluster, as it is printed there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "use" / "spark-flights.md").read_text()


@pytest.mark.timeout(60)  # a process of its own, which imports pandas
def test_the_command_with_pandas_prints_what_the_page_shows(tmp_path: Path) -> None:
    [command] = re.findall(r"^python3 -c .*$", PAGE, re.MULTILINE)
    [printed] = re.findall(r"^ +hour carrier +airline .*\n(?:\d.*\n)+", PAGE, re.MULTILINE)
    cells = [line.split() for line in printed.splitlines()[1:]]
    names = printed.splitlines()[0].split()
    frame = pd.DataFrame(
        {
            "hour": pd.to_datetime([f"{row[0]} {row[1]}" for row in cells]),
            "carrier": [row[2] for row in cells],
            "airline": [" ".join(row[3:-5]) for row in cells],
            **{name: [int(row[at]) for row in cells] for at, name in ((-5, "flights"), (-4, "cancelled"))},
            **{name: [float(row[at]) for row in cells] for at, name in enumerate(names[-3:], start=-3)},
        }
    )
    for inner in ("_checkpoint/parquet/offsets", "_spark_metadata"):
        (tmp_path / "delays" / inner).mkdir(parents=True)
        (tmp_path / "delays" / inner / "0").write_text("v1")
    frame.to_parquet(tmp_path / "delays" / "part-00000.snappy.parquet")
    words = [sys.executable, *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == printed
