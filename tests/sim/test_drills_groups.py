"""The scripts of consumer groups come to their end where nothing is wrong, and find what they are there for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from scripted_clusters import ScriptedCluster
from simulation.clients.group_scripts import Scripted
from simulation.defects import planted
from simulation.judging.group_rules import GroupRules
from simulation.judging.invariants import InvariantBroken
from simulation.kernel.scheduler import Process

from regency.kafka.groups.placement import OFFSETS_TOPIC
from regency.model.ids import BrokerId

pytestmark = pytest.mark.sim

REPLICAS = BrokerId(1), BrokerId(2), BrokerId(3)
SCRIPTS = "older_generation", "taken_over", "replaced_while_assigned"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as held:
        yield held


def played(stack: ExitStack, script: str, seed: int) -> bool:
    """Play a script on a calm cluster; whether it came to its end. Raises InvariantBroken."""
    cluster = ScriptedCluster(stack, seed, REPLICAS)
    cluster.create(OFFSETS_TOPIC, REPLICAS)
    world = cluster.world
    rules = GroupRules(world.zookeeper, cluster.judges.facts, 1)
    process = Process(cluster.scheduler, "scripted")
    member = Scripted(cluster.scheduler, world.network, process, rules, "", list(world.hosts))
    ended: list[bool] = []

    def play() -> None:
        number = 0
        while not member.find():  # until the topic's partitions are known
            pass
        while not (ended and ended[-1]) and number < 3:
            ended.append(member.play(getattr(member, script), number))
            number += 1

    cluster.scheduler.spawn(process, "scripted", play)
    cluster.until(lambda: bool(ended) and (ended[-1] or len(ended) == 3), 60, every_us=100_000)
    process.kill()
    return ended[-1]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_comes_to_its_end(stack: ExitStack, script: str, seed: int) -> None:
    assert played(stack, script, seed)


@pytest.mark.parametrize(
    ("script", "defect", "broken"),
    [
        ("older_generation", "any-generation-commits", "old-generations-refused"),
        ("taken_over", "fenced-not-answered", "replaced-are-fenced"),
        ("replaced_while_assigned", "replaced-without-a-rebalance", "one-assignment-per-generation"),
    ],
)
def test_what_is_wrong_shows_in_its_script(stack: ExitStack, script: str, defect: str, broken: str) -> None:
    stack.enter_context(planted(defect))
    with pytest.raises(InvariantBroken) as found:
        played(stack, script, 1)
    assert found.value.name == broken
