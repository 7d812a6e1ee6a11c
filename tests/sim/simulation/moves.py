"""Somebody who has replicas moved between the log directories of their brokers, in every eighth deep schedule."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from regency.broker_agent.replication import directory_moves
from regency.broker_agent.replication.api import Role
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.model.ids import BrokerId, TopicPartition
from simulation.defects.patching import Patch
from simulation.shape import DRILL_EVERY, Shape, directories_of
from simulation.world import World

EVERY: Final = 2 * DRILL_EVERY
_PLACE: Final = DRILL_EVERY + 1
SECOND_US: Final = 1_000_000
_PACE: Final = directory_moves._SLICE_BYTES, directory_moves._PAUSE_MS
"""In production."""


def are_made(shape: Shape, seed: int) -> bool:
    """Whether replicas move in a run, which has brokers with two directories then."""
    return shape.profile == "deep" and seed % EVERY == _PLACE and shape.storage.directories > 1


@contextmanager
def slowly(shape: Shape, seed: int) -> Iterator[None]:
    """Inside, copying takes a while in runs with moves: a batch or two at a time."""
    chance = random.Random(f"pace of moves {seed}")
    patch = Patch()
    try:
        if are_made(shape, seed):
            patch.set(directory_moves, "_SLICE_BYTES", chance.choice((1, 100, 400)))
            patch.set(directory_moves, "_PAUSE_MS", chance.choice((1, 10, 100)))
        yield
    finally:
        patch.undo()


class Mover:
    """Asks for a move now and then, until `close`; some are cancelled by the next one."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._chance = random.Random(f"moves {seed}")
        self._closed = not are_made(world.shape, seed)
        if not self._closed:
            self._wait()

    def close(self) -> None:
        """No more moves; those that go on are no slower than in production: several would take a minute and more."""
        self._closed = True
        directory_moves._SLICE_BYTES, directory_moves._PAUSE_MS = _PACE

    def unfinished(self) -> list[str]:
        """Replicas that are still being moved though they are led or followed, in words."""
        found: list[str] = []
        for broker, agent in sorted(self._world.agents.items()):
            if agent.logs is not None and agent.replicas is not None and agent.process.alive:
                served = {name for name, each in agent.replicas.partitions.items() if each.role is not Role.NONE}
                moving = [str(name) for name in agent.logs.futures.all() if name in served]
                found.extend(f"{name} is still moved on broker {broker}" for name in moving)
        return found

    def _wait(self) -> None:
        self._world.scheduler.at(int((0.2 + 2 * self._chance.random()) * SECOND_US), self._ask)

    def _ask(self) -> None:
        if self._closed:
            return
        chance, world = self._chance, self._world
        host = chance.choice([each for each in world.hosts.values() if len(_directories(world, each.broker)) > 1])
        target, which = chance.choice(_directories(world, host.broker)), chance.random()
        agent = host.agent
        if agent is not None and agent.process.alive and agent.replicas is not None and agent.replicas.partitions:
            names = sorted(agent.replicas.partitions)
            name = names[int(which * len(names))]
            world.note("admin", agent.process.name, "%s is to be moved to %s", name, target)
            agent.post(partial(_alter, agent.replicas, name, target))
        self._wait()


def _directories(world: World, broker: BrokerId) -> tuple[str, ...]:
    return directories_of(world.shape, broker)


def _alter(replicas: ReplicaManager, name: TopicPartition, target: str) -> None:
    replicas.alter_log_dirs({name: Path(target)})
