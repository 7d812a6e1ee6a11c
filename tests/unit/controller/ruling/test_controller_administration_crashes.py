"""What a client asked for is whole though its controller died, wherever that was, and harmless when asked again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from regency.controller.term import Resign
from regency.controller.topics.config_changes import AlterConfigs, ConfigAlteration, ResourceType
from regency.controller.topics.partition_creation import CreatePartitions, MorePartitions
from regency.model import znodes
from regency.model.crash_points import observe
from regency.model.settings.dynamic import ConfigChange, Operation
from regency.model.znodes import paths


class Died(BaseException):
    """The controller's process is gone."""


def ask_twice_over_a_death(world, make: Callable[[], object], place: int) -> int:
    """Ask; at the `place`th place the controller dies, and its successor is asked again. How many places there were."""
    passed = 0

    def at(_name: str) -> None:
        nonlocal passed
        passed += 1
        if passed == place:
            raise Died

    observe(at)
    try:
        world.candidates[0].ask(make())
    except Died:
        observe(None)
        dead = world.candidates.pop(0)
        world.ensemble.expire(dead.session.session_id)
        dead.channels.close()
        world.candidate(2)
        world.candidates[0].ask(make())
    finally:
        observe(None)
    return passed


def grown(world, place: int) -> int:
    world.write_topic("t", {0: [1, 2], 1: [2, 3]})
    more = (MorePartitions("t", 4),)
    passed = ask_twice_over_a_death(world, lambda: CreatePartitions(more, validate_only=False), place)
    world.settle()

    path = paths.topic("t")
    topic = znodes.decode_topic(path, world.ensemble.nodes[path].data, topic="t", zk_version=0, czxid=0)
    assert sorted(topic.partitions) == [0, 1, 2, 3]
    for number in range(4):
        leader, isr, epoch, _ = world.state("t", number)
        assert (leader, epoch) == (topic.partitions[number].replicas[0], 0)
        assert set(isr) == set(topic.partitions[number].replicas)
        assert all(world.agents[broker].states for broker in isr)
    return passed


def altered(world, place: int) -> int:
    world.write_topic("t", {0: [1]})
    change = ConfigChange("retention.ms", Operation.SET, "1000")
    resources = (
        ConfigAlteration(ResourceType.TOPIC, "t", (change,)),
        ConfigAlteration(ResourceType.BROKER, "", (ConfigChange("min.insync.replicas", Operation.SET, "2"),)),
    )
    make: Callable[[], object] = lambda: AlterConfigs(resources, incremental=True, validate_only=False)  # noqa: E731
    passed = ask_twice_over_a_death(world, make, place)

    for path, config in (
        (paths.topic_config("t"), {"retention.ms": "1000"}),
        (paths.DEFAULT_BROKER_CONFIG, {"min.insync.replicas": "2"}),
    ):
        assert znodes.decode_config(path, world.ensemble.nodes[path].data) == config
    names = world.ensemble.names(paths.CONFIG_CHANGES)
    told = [
        znodes.decode_config_change(path, world.ensemble.nodes[path].data)
        for path in (f"{paths.CONFIG_CHANGES}/{name}" for name in names)
    ]
    assert set(told) == {"topics/t", "brokers/<default>"}
    return passed


def resigned(world, place: int) -> int:
    passed = ask_twice_over_a_death(world, Resign, place)
    for candidate in world.candidates:
        world.clock.advance(10_000)
        candidate.settle()
    world.settle()

    assert sum(candidate.rules for candidate in world.candidates) == 1
    world.write_topic("t", {0: [1, 2]})
    assert world.state("t")[:2] == (1, (1, 2))
    return passed


@pytest.mark.parametrize("story", [grown, altered, resigned])
def test_a_controller_may_die_at_any_place(new_world, story):
    def world():
        made = new_world()
        made.start_brokers(1, 2, 3)
        made.candidate(1)
        return made

    places = story(world(), 0)
    assert places > 2
    for place in range(1, places + 1):
        story(world(), place)
