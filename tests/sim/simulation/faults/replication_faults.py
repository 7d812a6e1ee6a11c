"""What befalls the replicas of one partition, in an order that replication has to stand."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from regency.model.ids import BrokerId, TopicPartition
from simulation.cluster.channels import host_of
from simulation.faults import zookeeper_faults
from simulation.faults.network_faults import Trouble, afflict
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.stage import Deed, Stage
from simulation.world import Host


def deeds(stage: Stage) -> dict[Kind, Deed]:
    faults = _ReplicationFaults(stage)
    return {Kind.FAILOVERS: faults.failovers, Kind.STOP_AND_CUT: faults.stop_and_cut}


class _ReplicationFaults:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world

    def failovers(self, fault: Fault, host: Host) -> None:
        """The leaders of one partition end, one after another, each while a follower lags and another hears nobody.

        So who is elected may lack what others have, and have what they lack (KIP-101, KIP-279).
        """
        del host
        chance = fault.chance()
        led = sorted({name for each in self._world.hosts.values() for name in _led_by(each)})
        if not led:
            return
        partition = chance.choice(led)
        lag_s = 1 + 2 * chance.random()
        at_s = 0.0
        for number in range(chance.randint(2, 3)):
            depose = partial(self._depose, partition, chance.random(), lag_s, fault.lossy and number == 0)
            self._stage.later(int(at_s * SECOND_US), depose)
            at_s += lag_s + (0.5 + 2 * chance.random() if chance.random() < 0.3 else 3.2 + 1.6 * chance.random())
            lag_s = 0.1 + 0.7 * chance.random()

    def stop_and_cut(self, fault: Fault, host: Host) -> None:
        """An agent stops in order and is started again; soon it stops once more, or its machine loses power."""
        chance = fault.chance()

        def start(then: Callable[[], None], after_s: float) -> None:
            self._stage.start_again(host, SECOND_US // 4)
            self._stage.later(SECOND_US // 4 + int(after_s * SECOND_US), then)

        def cut() -> None:
            self._stage.die(host, lossy=fault.lossy)
            self._stage.later(int(chance.random() * SECOND_US), self._stage.keep_down(host))

        def stop() -> None:
            """While another broker is far away: some of what it is asked to copy is still on its way."""
            far = host_of(BrokerId(fault.other))
            links = [(host.name, far), (far, host.name)]
            trouble = Trouble(extra_us=int((0.1 + 0.5 * chance.random()) * SECOND_US))
            self._stage.later(3 * SECOND_US, afflict(self._stage, links, trouble))
            self._stage.later(
                int(1.5 * chance.random() * SECOND_US),
                lambda: self._world.stop_agent(host.broker, lambda: start(lambda: None, 0)),
            )

        stops_again = not fault.lossy and chance.random() < 0.5
        if stops_again:
            self._world.stop_agent(host.broker, lambda: start(stop, 0))
        else:
            self._world.stop_agent(host.broker, lambda: start(cut, 1.5 + 4 * chance.random()))

    def _depose(self, partition: TopicPartition, moment: float, lag_s: float, lossy: bool) -> None:
        """The leader ends; before that a follower lags, from then on another one is cut off from all but clients.

        One that stops in order goes on to answer meanwhile, and late; after one that dies, whoever lagged is heard.
        """
        hosts = list(self._world.hosts.values())
        leader = next((each for each in hosts if partition in _led_by(each)), None)
        if leader is None:
            return
        chance = random.Random(moment)
        lagging, deaf = chance.sample([each for each in hosts if each is not leader], 2)
        words = "leads %s and ends soon; %s lags, %s is cut off"
        self._stage.note(leader.name, words, partition, lagging.name, deaf.name)
        stops = chance.random() < 0.35
        trouble = Trouble(blocked=not stops, extra_us=int((0.05 + 0.5 * chance.random()) * SECOND_US))
        lags_s = lag_s + (2 * chance.random() if stops else 0)
        self._stage.later(int(lags_s * SECOND_US), afflict(self._stage, self._links(lagging), trouble))
        self._stage.later(int(lag_s * SECOND_US), partial(self._end, leader, deaf, chance, stops, lossy))

    def _links(self, host: Host) -> list[tuple[str, str]]:
        others = [each.name for each in self._world.hosts.values() if each is not host]
        return [(host.name, other) for other in others] + [(other, host.name) for other in others]

    def _end(self, host: Host, deaf: Host, chance: random.Random, stops: bool, lossy: bool) -> None:
        """It stops in order, or dies, by chance only for a moment."""
        if chance.random() < 0.7:
            heard_us = int((2 + 5 * chance.random()) * SECOND_US)
            self._stage.later(heard_us, afflict(self._stage, self._links(deaf), Trouble(blocked=True)))
        if chance.random() < 0.4:
            agents = [f"agent-{each}" for each in self._world.hosts if each != host.broker]
            slow = zookeeper_faults.Trouble(extra_us=int((0.2 + chance.random()) * SECOND_US))
            slow_us = int((3 + 3 * chance.random()) * SECOND_US)
            self._stage.later(slow_us, zookeeper_faults.afflict(self._stage, agents, slow))
        again_us = int((0.5 if chance.random() < 0.3 else 7) * chance.random() * SECOND_US)
        if stops:
            self._world.stop_agent(host.broker, lambda: self._stage.start_again(host, again_us))
        else:
            self._stage.die(host, lossy=lossy)
            self._stage.later(again_us, self._stage.keep_down(host))


def _led_by(host: Host) -> list[TopicPartition]:
    agent = host.agent
    if agent is None or not agent.process.alive or agent.replicas is None:
        return []
    return [name for name, partition in agent.replicas.partitions.items() if partition.is_leader]
