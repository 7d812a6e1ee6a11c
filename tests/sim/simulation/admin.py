"""Whoever creates the topics of a run: asks whom agents take for the controller, again and again, until they exist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from regency.controller.topics.creation import CreatedTopic, NewTopic
from regency.model.kafka_errors import ErrorCode
from simulation.cluster.addresses import CLIENTS
from simulation.cluster.controller import CreateAsked
from simulation.cluster.edges import ask
from simulation.kernel.scheduler import Process
from simulation.network import NetFailed
from simulation.shape import TopicShape
from simulation.world import World

AGAIN_US = 200_000
TIMEOUT_MS = 3_000


class Admin:
    """A client that creates topics. `created` is called once, when all exist."""

    def __init__(self, world: World, topics: Sequence[TopicShape], created: Callable[[], None]) -> None:
        self._world = world
        self._missing = {topic.name: topic for topic in topics}
        self._created = created
        self._process = Process(world.scheduler, "admin")
        world.scheduler.spawn(self._process, "admin", self._run)

    def _run(self) -> None:
        scheduler = self._world.scheduler
        while self._missing:
            scheduler.sleep_us(AGAIN_US)
            address = ruling_endpoint(self._world)
            if address is None:
                continue
            wanted = tuple(_new_topic(topic) for topic in self._missing.values())
            network = self._world.network
            answer = ask(scheduler, network, self._process, CLIENTS, address, CreateAsked(wanted), TIMEOUT_MS)
            self._take(answer)
        self._created()

    def _take(self, answer: Any) -> None:
        if isinstance(answer, NetFailed | Exception):
            return
        for topic in answer:
            assert isinstance(topic, CreatedTopic)
            if topic.error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._missing.pop(topic.name, None)
                self._world.note("admin", "admin", "topic %s exists", topic.name)


def ruling_endpoint(world: World) -> str | None:
    """Where the newest controller is that any live agent knows."""
    rulings = [agent.metadata.ruling for agent in world.agents.values() if agent.process.alive]
    known = [ruling for ruling in rulings if ruling is not None]
    return max(known, key=lambda ruling: ruling.epoch).endpoint if known else None


def _new_topic(topic: TopicShape) -> NewTopic:
    configs = {"min.insync.replicas": str(topic.min_insync)}
    if topic.unclean:
        configs["unclean.leader.election.enable"] = "true"
    return NewTopic(topic.name, topic.partitions, topic.replication_factor, (), configs)
