"""Directories that a job writes to are tried before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regency.pipeline.files.files import (
    OutputExists,
    OutputUnwritable,
    read_text,
    refuse_unfit,
    refuse_unwritable,
    write_text,
)

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
    for refuse in (refuse_unfit, refuse_unwritable):
        with pytest.raises(OutputUnwritable, match=r"cannot be made: .*Name a directory"):
            refuse(spark, directory)


def test_a_directory_to_go_on_with_may_be_there_and_is_left_as_it_was(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("no directory")
    for name in ("there", "new"):
        refuse_unwritable(spark, str(tmp_path / name))
    with pytest.raises(OutputUnwritable, match=r"cannot be made: .*file\. Name a directory"):
        refuse_unwritable(spark, str(tmp_path / "file"))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "there"]


@pytest.mark.parametrize(
    ("place", "said"),
    [("s3a://bucket/report", "S3AFileSystem not found. Spark needs the package"), ("a:b", "Relative path in abs")],
)
def test_what_java_says_of_a_place_it_does_not_know_is_told(spark: Any, place: str, said: str) -> None:
    with pytest.raises(OutputUnwritable, match=said):
        refuse_unwritable(spark, place)


def test_a_small_file_is_there_whole_and_alone(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "name")
    assert read_text(spark, path) is None
    write_text(spark, path, "flüge\n")
    assert read_text(spark, path) == "flüge\n"
    assert [each.name for each in tmp_path.iterdir()] == ["name"]
    with pytest.raises(OutputUnwritable):
        write_text(spark, str(tmp_path / "name" / "below"), "x")
