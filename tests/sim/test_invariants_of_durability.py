"""What was synced is looked for after a restart, and what may be checkpointed when."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from judged_brokers import TP, Judged, three_records
from simulation.judging.durability_rules import CheckpointRules
from simulation.judging.invariants import InvariantBroken

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


def test_what_was_not_synced_may_be_gone_after_a_restart(judged: Judged) -> None:
    judged.facts.lossy_crash(BrokerId(3))
    restart(judged, lose=lose_records, learn=as_it_is)


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


@pytest.mark.parametrize("is_syncing", [False, True], ids=["synced", "not synced"])
def test_high_watermarks_wait_for_cuts_to_be_synced(judged: Judged, is_syncing: bool) -> None:
    logs: Any = judged[3].logs
    agent: Any = SimpleNamespace(broker_id=3, logs=logs)
    rules = CheckpointRules(agent)
    rules.look()
    logs._services.cuts._running = is_syncing
    logs._directories[judged[3].log().home].write_high_watermarks_later({TP: Offset(3)})
    if is_syncing:
        with pytest.raises(InvariantBroken, match="marks-after-cuts: broker 3"):
            rules.look()
    else:
        rules.look()
