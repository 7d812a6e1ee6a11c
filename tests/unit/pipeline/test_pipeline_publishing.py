"""Results take the place of older ones whole or not at all, wherever Ctrl-C strikes, and whoever else writes there."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regency.pipeline.files import publishing
from regency.pipeline.files.files import OutputUnwritable, why_no_directory, why_no_new_directory
from regency.pipeline.files.publishing import Occupied, PlaceTaken, _HadoopPlaces, _LocalPlaces, published

SESSION: Any = None


class Local(_LocalPlaces):
    """Directories of this machine; the `dies_after`th step is done, and interrupted."""

    dies_after = 0
    swaps = True

    def __init__(self, *_: Any) -> None:
        self.steps = 0

    def delete_when_java_ends(self, path: str) -> None:
        assert Path(path).exists(), "Hadoop forgets what is not there"

    def move(self, path: str, to: str) -> None:
        super().move(path, to)
        self.step()

    def swap(self, path: str, other: str) -> bool:
        done = self.swaps and super().swap(path, other)
        if done:
            self.step()
        return done

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.dies_after:
            raise SystemExit(130)


class Away(_HadoopPlaces):
    """Another file system, whose renames are as Hadoop has them."""

    def __init__(self) -> None:
        super().__init__(SESSION, System())

    def _path(self, path: str) -> Any:
        return path

    def delete_when_java_ends(self, path: str) -> None:
        pass

    def claim(self, path: str) -> bool:
        try:
            Path(path).open("x").close()
        except FileExistsError:
            return False
        return True


class System:
    """Directories of this machine as Java has them: a directory is moved into one that is there."""

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def mkdirs(self, path: str) -> bool:
        Path(path).mkdir()
        return True

    def create(self, path: str, _: Any) -> Any:
        file = Path(path).open("wb")  # noqa: SIM115
        return SimpleNamespace(write=file.write, close=file.close)

    def delete(self, path: str, _: Any) -> None:
        if Path(path).is_dir():
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)

    def rename(self, path: str, to: str) -> bool:
        if Path(to).is_dir():
            to = f"{to}/{Path(path).name}"
        try:
            Path(path).rename(to)
        except OSError:
            return False
        return True


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(publishing, "_places", lambda _, path: (Local(), os.path.realpath(path)))
    report = tmp_path / "report"
    report.mkdir()
    (report / "done").write_text("last week")
    return report


def publish(place: Path, *, overwrite: bool = True, before: Callable[[], object] = lambda: None) -> None:
    with published(SESSION, str(place), mark="done", overwrite=overwrite) as staging:
        staging.write("done", b"this week")
        before()


def beside(place: Path) -> list[str]:
    return sorted(each.name for each in place.parent.iterdir())


@pytest.mark.parametrize(
    ("swaps", "dies_after", "holds"),
    [
        (True, 0, "this week"),
        (True, 1, "this week"),
        (False, 0, "this week"),
        (False, 1, "last week"),
        (False, 2, "this week"),
    ],
)
def test_one_of_the_two_is_there_and_nothing_else(
    place: Path, *, swaps: bool, dies_after: int, holds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Local, "dies_after", dies_after)
    monkeypatch.setattr(Local, "swaps", swaps)
    try:
        publish(place)
    except SystemExit:
        assert dies_after
    assert (place / "done").read_text() == holds
    assert beside(place) == ["report"]


def test_nothing_is_replaced_unasked(place: Path) -> None:
    with pytest.raises(PlaceTaken, match="is there already"):
        publish(place, overwrite=False)
    assert beside(place) == ["report"]


def test_what_takes_the_place_meanwhile_stays(place: Path) -> None:
    def replace() -> None:
        shutil.rmtree(place)
        place.mkdir()
        (place / "mine").write_text("no result of this job")

    with pytest.raises(PlaceTaken, match="another process"):
        publish(place, before=replace)
    assert [each.name for each in place.iterdir()] == ["mine"]

    other = place.parent / "other"
    with pytest.raises(PlaceTaken, match="another process"):
        publish(other, before=other.mkdir)
    assert list(other.iterdir()) == []
    assert beside(place) == ["other", "report"]


@pytest.mark.parametrize("swaps", [True, False])
def test_what_goes_meanwhile_is_told(place: Path, *, swaps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Local, "swaps", swaps)
    with pytest.raises(PlaceTaken, match="another process"):
        publish(place, before=lambda: shutil.rmtree(place))
    assert beside(place) == []


@pytest.mark.parametrize("kind", ["swapped", "moved", "away"])
def test_of_many_at_once_each_is_whole_or_refused(place: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Local, "swaps", kind == "swapped")
    if kind == "away":
        monkeypatch.setattr(publishing, "_places", lambda _, path: (Away(), path))
    wrong: list[BaseException] = []
    refused: list[PlaceTaken] = []

    def run(name: str) -> None:
        for number in range(20):
            try:
                with published(SESSION, str(place), mark="done", overwrite=True) as staging:
                    for part in ("a", "b", "done"):
                        staging.write(part, f"{name} {number}".encode())
            except PlaceTaken as error:
                refused.append(error)
            except Exception as error:  # noqa: BLE001  (whatever it is, it is wrong)
                wrong.append(error)

    writers = [threading.Thread(target=run, args=(name,)) for name in "xyz"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not wrong
    assert kind != "swapped" or not refused
    assert beside(place) == ["report"]
    assert sorted(each.name for each in place.iterdir()) == ["a", "b", "done"]
    assert len({path.read_text() for path in place.iterdir()}) == 1


def test_there_are_results_at_every_moment_where_they_are_swapped(place: Path) -> None:
    missed: list[int] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            if not place.exists():
                missed.append(1)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for _ in range(100):
            publish(place)
    finally:
        ended.set()
        reader.join()
    assert not missed
    assert beside(place) == ["report"]


def test_a_link_stays_one_and_what_it_leads_to_is_replaced(place: Path) -> None:
    link = place.parent / "latest"
    link.symlink_to(place.name)
    publish(link)
    assert link.is_symlink()
    assert (place / "done").read_text() == "this week"
    assert beside(place) == ["latest", "report"]


def test_where_nothing_can_be_made_is_told_in_one_line(place: Path) -> None:
    with pytest.raises(OutputUnwritable, match=r"report/done/below cannot be made: \w.*\. Name a directory"):
        publish(place / "done" / "below")


def test_a_lock_that_somebody_left_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "_places", lambda _, path: (Away(), path))
    (place.parent / ".report.lock").touch()
    with pytest.raises(PlaceTaken, match=r"is being written by another process, as /.*/\.report\.lock says"):
        publish(place)
    assert (place / "done").read_text() == "last week"
    assert beside(place) == [".report.lock", "report"]


def test_without_the_system_call_a_move_takes_no_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "_renameat2", lambda *_: False)
    other = place.parent / "other"
    other.mkdir()
    (other / "done").write_text("another's")
    with pytest.raises(Occupied):
        Local().move(str(place), str(other))
    publish(place)
    assert (place / "done").read_text() == "this week"
    assert (other / "done").read_text() == "another's"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "is empty"),
        (" ", "is empty"),
        ("x:y", "reads as a URI of the scheme x"),
        (":y", "has a colon"),
        ("a b:c", "has a colon"),
        ("file:", "reads as a URI"),
        ("/", "is the root"),
        ("file:/", "is the root"),
        ("file:///", "is the root"),
        ("hdfs://h", "is the root"),
        ("hdfs://h/", "is the root"),
    ],
)
def test_a_name_that_cannot_be_a_directory_is_refused(name: str, why: str) -> None:
    assert why_no_directory(name).startswith(why)
    assert why_no_new_directory(name) == why_no_directory(name)
    with pytest.raises(PlaceTaken, match="Name a directory"), published(SESSION, name):
        pass


@pytest.mark.parametrize("name", [".", "..", "a/..", "./", "hdfs://h/.."])
def test_a_directory_that_is_there_always_is_no_new_one(name: str) -> None:
    assert why_no_directory(name) == ""
    assert why_no_new_directory(name)


@pytest.mark.parametrize(
    "name", ["a", "a/", "/a", "./a:b", "file:/a", "file:///a", "hdfs://h:1/a", "s3a://b/a", "~", "a%20b"]
)
def test_names_that_may_be_new(name: str) -> None:
    assert why_no_new_directory(name) == ""
