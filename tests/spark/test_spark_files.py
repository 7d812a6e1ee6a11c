"""Directories that a job writes to are tried before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regency.pipeline.files import OutputExists, OutputUnwritable, refuse_unfit

pytestmark = pytest.mark.spark


def test_a_directory_that_can_be_made_is_not_left_behind(spark: Any, tmp_path: Path) -> None:
    refuse_unfit(spark, str(tmp_path / "above" / "report"))
    assert not (tmp_path / "above" / "report").exists()


def test_a_directory_that_is_there_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(OutputExists, match=str(tmp_path)):
        refuse_unfit(spark, str(tmp_path))


@pytest.mark.parametrize("place", ["file/report", "nowhere://host/report"])
def test_a_place_where_nothing_can_be_written_is_refused(spark: Any, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("no directory")
    directory = place if "://" in place else str(tmp_path / place)
    with pytest.raises(OutputUnwritable, match="cannot be made"):
        refuse_unfit(spark, directory)
