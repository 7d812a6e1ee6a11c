"""A broker that is said to be gone for good, while controllers die and it returns all the same, at any moment."""

from __future__ import annotations

import random
from contextlib import ExitStack

import pytest
from scripted_clusters import BLUE, ScriptedCluster
from simulation.admin import Client
from simulation.cluster.controller import Asked

from regency.controller.brokers.leaving import ForgetBroker
from regency.model import znodes
from regency.model.facts import ReplicaAssignment
from regency.model.ids import BrokerId
from regency.model.znodes import paths

FIRST, SECOND, GONE = BrokerId(1), BrokerId(2), BrokerId(3)
SEEDS = range(1, 8)
ASKING_US = 40_000
"""About as long as it takes until a request is answered."""
STARTING_US = 500_000
"""About as long as it takes until a broker is registered."""


class Script(ScriptedCluster):
    """Brokers 1 to 3; blue-0 on 3 and 1 moves to 1 and 2 while broker 3 is dead, and clients write to it."""

    def __init__(self, stack: ExitStack, seed: int) -> None:
        super().__init__(stack, seed, (GONE, FIRST))
        self.answers: list[str] = []
        self.workload.start()
        self.pass_s(2)
        self.world.kill_agent(GONE)
        self.move(FIRST, SECOND)
        self.until(lambda: self.assigned == ReplicaAssignment((FIRST, SECOND), deleting=(GONE,)), 60)

    def move(self, *replicas: BrokerId) -> None:
        self.world.zookeeper.write_as_admin(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves([(BLUE, replicas)]))

    def forget(self) -> None:
        """Somebody says that the broker is gone for good, until somebody answers."""

        def told(answer: object) -> str:
            self.answers.append(answer.error.name)
            return self.answers[-1]

        Client(self.world, lambda: Asked(lambda: ForgetBroker(GONE)), told, tries=200)

    @property
    def assigned(self) -> ReplicaAssignment:
        held = self.world.zookeeper.read(paths.topic("blue"))
        return znodes.decode_topic("/", held.data, topic="blue", zk_version=0, czxid=0).partitions[0]

    @property
    def remembers(self) -> bool:
        return self.world.zookeeper.read(paths.incarnation(GONE)) is not None


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_whoever_dies_and_whenever_it_returns_nobody_waits_and_nothing_is_lost(seed: int, returns: bool) -> None:
    chance = random.Random(seed)
    with ExitStack() as stack:
        script = Script(stack, seed)
        world, scheduler = script.world, script.scheduler
        if returns:
            scheduler.at(chance.randrange(2 * STARTING_US), lambda: world.start_agent(GONE))
        scheduler.at(STARTING_US, script.forget)
        dies_us = STARTING_US + chance.randrange(ASKING_US)
        scheduler.at(dies_us, lambda: world.kill_controller(world.ruler().broker))

        script.until(lambda: script.assigned == ReplicaAssignment((FIRST, SECOND)), 60)

        script.until(lambda: bool(script.answers), 60)
        assert script.answers[0] in ("NONE", "BROKER_ID_NOT_REGISTERED", *(("INVALID_REQUEST",) if returns else ()))
        assert returns or not script.remembers
        world.heal()
        script.until_all_is_well()
        assert script.remembers
        script.move(GONE, SECOND)
        script.until(lambda: script.assigned == ReplicaAssignment((GONE, SECOND)), 60)
        script.workload.stop()
        script.until_all_is_well()
        assert script.missing() == 0
