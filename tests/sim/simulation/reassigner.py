"""A client that asks for reassignments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from regency.controller.reassignment.requests import AlterReassignments
from regency.model.ids import BrokerId, TopicPartition
from simulation.admin import AGAIN_US, TIMEOUT_MS, ruling_endpoint
from simulation.cluster.addresses import CLIENTS
from simulation.cluster.controller import Asked
from simulation.cluster.edges import ask
from simulation.kernel.scheduler import Process
from simulation.network import NetFailed
from simulation.world import World

TRIES: Final = 5


class Reassigner:
    """Asks until somebody answers, or it has had enough. None: as it was before. What is refused is left."""

    def __init__(self, world: World, moves: Mapping[TopicPartition, tuple[BrokerId, ...] | None]) -> None:
        self._world = world
        self._moves = tuple(moves.items())
        self._process = Process(world.scheduler, "reassigner")
        world.scheduler.spawn(self._process, "reassigner", self._run)

    def _run(self) -> None:
        world = self._world
        for _ in range(TRIES):
            address = ruling_endpoint(world)
            if address is not None:
                request = Asked(lambda: AlterReassignments(self._moves))
                answer = ask(world.scheduler, world.network, self._process, CLIENTS, address, request, TIMEOUT_MS)
                if not isinstance(answer, NetFailed | Exception):
                    world.note("admin", "reassigner", "is answered %s", [each.error.name for each in answer])
                    return
            world.scheduler.sleep_us(AGAIN_US)
