"""What befalls the replicas of one partition, in an order that replication has to stand."""

from __future__ import annotations

import random
from functools import partial

from regency.model.ids import TopicPartition
from simulation.faults.network_faults import Trouble, afflict
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.stage import Deed, Stage
from simulation.world import Host


def deeds(stage: Stage) -> dict[Kind, Deed]:
    """The faults of this file."""
    faults = _ReplicationFaults(stage)
    return {Kind.FAILOVERS: faults.failovers, Kind.STOP_AND_CUT: faults.stop_and_cut}


class _ReplicationFaults:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world

    def failovers(self, fault: Fault, host: Host) -> None:
        """The leaders of one partition end, one after another, each while one of its followers hears little.

        So who is elected may lack what others have, and have what they lack (KIP-101, KIP-279).
        """
        del host
        chance = fault.chance()
        led = sorted({name for each in self._world.hosts.values() for name in _led_by(each)})
        if not led:
            return
        partition = chance.choice(led)
        at_us = 0
        for number in range(chance.randint(2, 3)):
            self._stage.later(at_us, partial(self._depose, partition, chance.random(), fault.lossy and number == 0))
            at_us += int((1 + 4.5 * chance.random()) * SECOND_US)

    def stop_and_cut(self, fault: Fault, host: Host) -> None:
        """An agent stops in order and is started again; soon after that its machine loses power."""
        chance = fault.chance()

        def stopped() -> None:
            self._stage.later(SECOND_US // 4, self._stage.keep_down(host))
            self._stage.later(int((1.5 + 4 * chance.random()) * SECOND_US), cut)

        def cut() -> None:
            self._stage.die(host, lossy=fault.lossy)
            self._stage.later(int(chance.random() * SECOND_US), self._stage.keep_down(host))

        self._world.stop_agent(host.broker, stopped)

    def _depose(self, partition: TopicPartition, moment: float, lossy: bool) -> None:
        hosts = list(self._world.hosts.values())
        leader = next((each for each in hosts if partition in _led_by(each)), None)
        if leader is None:
            return
        chance = random.Random(moment)
        follower = chance.choice([each for each in hosts if each is not leader])
        links = [(follower.name, each.name) for each in hosts if each is not follower]
        links += [(target, source) for source, target in links]
        trouble = Trouble(blocked=True)
        if chance.random() < 0.5:
            trouble = Trouble(extra_us=int((0.05 + 0.5 * chance.random()) * SECOND_US))
        self._stage.note(leader.name, "leads %s and ends soon, %s hears little", partition, follower.name)
        self._stage.later(int((0.5 + 5 * chance.random()) * SECOND_US), afflict(self._stage, links, trouble))
        self._stage.later(int(0.7 * chance.random() * SECOND_US), partial(self._end, leader, chance, lossy))

    def _end(self, host: Host, chance: random.Random, lossy: bool) -> None:
        """It dies for long, dies for a moment, or stops in order."""
        choice = chance.random()
        again_us = int((0.5 if choice < 0.3 else 7) * chance.random() * SECOND_US)
        if choice < 0.75:
            self._stage.die(host, lossy=lossy)
            self._stage.later(again_us, self._stage.keep_down(host))
        else:
            self._world.stop_agent(host.broker, lambda: self._stage.later(again_us, self._stage.keep_down(host)))


def _led_by(host: Host) -> list[TopicPartition]:
    agent = host.agent
    if agent is None or not agent.process.alive or agent.replicas is None:
        return []
    return [name for name, partition in agent.replicas.partitions.items() if partition.is_leader]
