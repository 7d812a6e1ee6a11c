"""Results take the place of older ones whole or not at all, wherever Ctrl-C strikes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from regency.pipeline.jobs import publishing
from regency.pipeline.jobs.publishing import PlaceTaken, published


class Files:
    """Directories of this machine; the `dies_after`th rename is done, and interrupted."""

    dies_after = 0

    def __init__(self, *_: Any) -> None:
        self.renames = 0

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def make(self, path: str) -> None:
        Path(path).mkdir()

    def delete_when_java_ends(self, path: str) -> None:
        assert Path(path).exists(), "Hadoop forgets what is not there"

    def delete(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def rename(self, path: str, to: str) -> None:
        Path(path).rename(to)
        self.renames += 1
        if self.renames == self.dies_after:
            raise SystemExit(130)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(publishing, "_Files", Files)
    report = tmp_path / "report"
    report.mkdir()
    (report / "done").write_text("last week")
    return report


def publish(place: Path, *, overwrite: bool = True) -> None:
    session: Any = None
    with published(session, str(place), mark="done", overwrite=overwrite) as staging:
        Path(staging.path("done")).write_text("this week")


@pytest.mark.parametrize(("dies_after", "holds"), [(0, "this week"), (1, "last week"), (2, "this week")])
def test_one_of_the_two_is_there_and_nothing_else(
    place: Path, dies_after: int, holds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Files, "dies_after", dies_after)
    try:
        publish(place)
    except SystemExit:
        assert dies_after
    assert (place / "done").read_text() == holds
    assert [each.name for each in place.parent.iterdir()] == ["report"]


def test_nothing_is_replaced_unasked(place: Path) -> None:
    with pytest.raises(PlaceTaken, match="is there already"):
        publish(place, overwrite=False)
    assert [each.name for each in place.parent.iterdir()] == ["report"]
