"""Files as power cuts leave them, made by hand: what was synced is there, and what was not is whole or gone.

The simulation cuts the power at any operation (test_log_after_power_cuts); these are real files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from killing.checks import Kills
from killing.ledger import Ledger

pytestmark = pytest.mark.integration

SYNCED, END = 12, 20
BATCH = 141
FIRST_UNSYNCED = 2 * BATCH
"""Byte in the second segment, which begins at offset 8."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ledger, Path]:
    """What a process told that wrote a log, and where that is."""
    kills = Kills(tmp_path_factory.mktemp("written"))
    ledger = kills.run("writing")
    log = kills.root / "a" / "flights-3"
    sizes = {int(path.stem): path.stat().st_size for path in log.glob("*.log")}
    assert sizes == {0: 4 * BATCH, 8: 4 * BATCH, 16: 2 * BATCH}
    assert log.with_name("recovery-point-offset-checkpoint").read_text() == f"0\n1\nflights 3 {SYNCED}\n"
    return ledger, kills.root


@pytest.fixture
def state(kills: Kills, written: tuple[Ledger, Path]) -> Callable[..., None]:
    """Checks what a start makes of files that are spoilt by a function of the log's directory."""
    told, origin = written

    def check(spoil: Callable[[Path], None], *, end: int = SYNCED) -> None:
        kills.take_copy(origin)
        spoil(kills.root / "a" / "flights-3")
        ledger = deepcopy(told)
        ledger.logs["flights-3"].least_end = end
        kills.check(ledger, spoilt=True)

    return check


def remove_segment(directory: Path, base: int) -> None:
    for path in directory.glob(f"{base:020d}.*"):
        path.unlink()


def spoil_tail(path: Path, at: int, how: str) -> None:
    """The file lost what is behind a byte, or has other bytes there: its size was written, and they were not."""
    size = path.stat().st_size
    os.truncate(path, at)
    if how != "lost":
        with path.open("ab") as file:
            file.write((b"\0" if how == "zeros" else b"\xa5") * (size - at))


@pytest.mark.parametrize("how", ["lost", "zeros", "other bytes"])
def test_a_tail_that_was_not_synced_ends_the_log_where_its_whole_batches_end(state: Any, how: str) -> None:
    for at in range(0, 2 * BATCH, 31):

        def spoil(directory: Path, at: int = at) -> None:
            spoil_tail(directory / f"{16:020d}.log", at, how)

        state(spoil, end=16 + at // BATCH * 2)


@pytest.mark.parametrize("later", [False, True], ids=["the later segment is gone", "the later segment is there"])
@pytest.mark.parametrize("how", ["lost", "zeros", "other bytes"])
def test_a_log_ends_at_a_hole_and_what_follows_it_is_dropped(state: Any, how: str, *, later: bool) -> None:
    for at in range(FIRST_UNSYNCED, 4 * BATCH, 47):

        def spoil(directory: Path, at: int = at) -> None:
            spoil_tail(directory / f"{8:020d}.log", at, how)
            if not later:
                remove_segment(directory, 16)

        state(spoil, end=8 + at // BATCH * 2)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("content", [None, b"", bytes(64), b"\xa5" * 45], ids=["lost", "empty", "zeros", "other bytes"])
def test_indexes_and_snapshots_that_were_not_synced_cost_nothing(
    state: Any, suffix: str, content: bytes | None
) -> None:
    def spoil(directory: Path) -> None:
        paths = [path for path in directory.glob(f"*{suffix}") if int(path.stem) >= 8]
        assert paths
        for path in paths:
            path.unlink()
            if content is not None:
                path.write_bytes(content)

    state(spoil, end=END)


@pytest.mark.parametrize("content", [None, b"", b"0\n1\n0 0\n"], ids=["lost", "empty", "older"])
def test_leader_epochs_that_were_not_synced_are_read_from_the_batches(state: Any, content: bytes | None) -> None:
    def spoil(directory: Path) -> None:
        path = directory / "leader-epoch-checkpoint"
        assert path.read_bytes() == b"0\n2\n0 0\n1 14\n"
        path.unlink()
        if content is not None:
            path.write_bytes(content)

    state(spoil, end=END)


@pytest.mark.parametrize("number", range(3))
def test_a_checkpoint_whose_renaming_was_lost_is_the_one_before(state: Any, number: int) -> None:
    names = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")
    before = ("0\n1\nflights 3 4\n", "0\n0\n", "0\n1\nflights 3 12\n")

    def spoil(directory: Path) -> None:
        path = directory.with_name(names[number])
        path.rename(path.with_name(f"{path.name}.9.tmp"))
        path.write_text(before[number])

    state(spoil, end=END)


def test_a_new_log_whose_name_was_not_synced_is_gone(state: Any, kills: Any) -> None:
    ledger = kills.run("writing", "log.creation.before_sync", 1)
    path = kills.root / "a" / "flights-3"
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    kills.check(ledger)
    state(lambda directory: None, end=END)
