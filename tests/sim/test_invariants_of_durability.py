"""What was synced is looked for after a restart, and what may be checkpointed when."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from judged_brokers import TP, Judged, three_records
from simulation.disk_files import Directory, File, Tree
from simulation.judging.durability_rules import CheckpointRules
from simulation.judging.invariants import InvariantBroken

from regency.kafka.logfiles.file_names import CLEAN_SHUTDOWN
from regency.model.ids import BrokerId, Offset

pytestmark = pytest.mark.sim


@pytest.fixture
def judged(tmp_path: Path) -> Iterator[Judged]:
    yield from three_records(tmp_path)


def restart(judged: Judged, *, lose: Callable[[Path], None] = lambda _: None, learn: Callable[[Any], None]) -> None:
    """Broker 3 dies, files of its log are damaged, and it hosts the log again, of which it has learnt what it can."""
    directory = judged[3].log().directory
    judged.cluster.crash(3)
    judged.look()
    lose(directory)
    judged.cluster.restart(3)
    judged.start(3)
    learn(judged[3].logs.get(TP))
    judged.cluster.tell(3)
    judged.look()


def lose_records(directory: Path) -> None:
    os.truncate(directory / "00000000000000000000.log", 0)


def as_it_is(_: Any) -> None:
    pass


def think_it_old(log: Any) -> None:
    log._segments.first.max_timestamp = 5


def test_what_was_synced_must_be_there_after_a_restart(judged: Judged) -> None:
    judged[3].log().flush()
    judged.facts.lossy_crash(BrokerId(3))
    with pytest.raises(InvariantBroken, match=r"synced-kept: broker 3, .* ends at 0"):
        restart(judged, lose=lose_records, learn=as_it_is)


def test_how_new_an_older_segment_is_must_be_known_after_a_restart(judged: Judged) -> None:
    log = judged[3].log()
    log.flush()
    log.roll()
    with pytest.raises(InvariantBroken, match=r"synced-kept: broker 3, .* segment at 0"):
        restart(judged, learn=think_it_old)


@pytest.mark.parametrize(
    ("is_syncing", "is_cut"), [(True, False), (False, True), (False, False)], ids=["syncing", "forgotten", "synced"]
)
def test_high_watermarks_wait_for_cuts_to_be_synced(judged: Judged, is_syncing: bool, is_cut: bool) -> None:
    logs: Any = judged[3].logs
    agent: Any = SimpleNamespace(broker_id=3, logs=logs)
    newest = File(0)
    newest.write(b"cut", 0)
    newest.sync()
    newest.truncate(3 - is_cut)
    tree: Any = SimpleNamespace(look=lambda path: newest if path.endswith(".log") else None)
    rules = CheckpointRules(agent, tree)
    rules.look()
    logs._services.cuts._running = is_syncing
    logs._directories[judged[3].log().home].write_high_watermarks_later({TP: Offset(3)})
    if is_syncing or is_cut:
        with pytest.raises(InvariantBroken, match="marks-after-cuts: broker 3"):
            rules.look()
    else:
        rules.look()


def test_a_checkpointed_high_watermark_must_be_known_when_the_log_is_hosted_again(judged: Judged) -> None:
    judged[3].logs.checkpoint_high_watermarks({TP: Offset(3)})
    restart(judged, learn=as_it_is)
    assert judged[3].log().high_watermark == 3
    judged[3].log().flush()
    judged[3].logs.high_watermark_checkpoint = lambda _: Offset(0)
    hosting, partition = judged[3].manager._hosting, judged[3].partition()
    partition.stop()
    hosting.forget(partition)
    judged.look()
    judged.cluster.tell(3)
    with pytest.raises(InvariantBroken, match=r"marks-kept: broker 3, .* is 0, checkpointed was 3"):
        judged.look()


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_checkpoint_keeps_the_high_watermarks_of_logs_that_it_is_not_told_of(
    judged: Judged, is_deleted: bool
) -> None:
    logs: Any = judged[3].logs
    (held,) = logs._directories.values()
    rules = CheckpointRules(SimpleNamespace(broker_id=3, logs=logs), Tree())  # type: ignore[arg-type]
    for offset in (2, 3):
        held.write_high_watermarks_later({TP: Offset(offset)})
        rules.look()
    if is_deleted:
        held.logs = {TP: object()}  # another of that name
    held.high_watermarks.clear()
    held.write_high_watermarks_later({})
    with nullcontext() if is_deleted else pytest.raises(InvariantBroken, match="marks-kept: broker 3"):
        rules.look()


@pytest.mark.parametrize(
    ("mark", "is_flushed", "fails", "found"),
    [(True, True, False, False), (True, False, False, True), (True, True, True, True), (False, False, True, False)],
    ids=["all is synced", "not synced", "failed before", "not marked"],
)
def test_a_directory_is_marked_as_clean_only_when_its_logs_were_closed(
    judged: Judged, mark: bool, is_flushed: bool, fails: bool, found: bool
) -> None:
    logs: Any = judged[3].logs
    (directory,) = logs._directories
    tree = Tree()
    agent: Any = SimpleNamespace(broker_id=3, logs=logs)
    rules = CheckpointRules(agent, tree)
    rules.look()
    if mark:
        put(tree, directory.path / CLEAN_SHUTDOWN)
    rules.over()  # as if it had died with its logs open
    if is_flushed:
        judged[3].log().flush()
    if fails:
        directory.failure = "failed"
    logs._logs.clear()
    with pytest.raises(InvariantBroken, match="marked-when-closed: broker 3") if found else nullcontext():
        rules.look()


def put(tree: Tree, path: Path) -> None:
    """An empty file, with the directories above it."""
    above = tree.root
    for part in path.parts[1:-1]:
        below = Directory()
        above.put(part, below)
        above = below
    above.put(path.name, File(0))
