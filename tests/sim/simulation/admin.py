"""Clients of controllers: they ask whom agents take for the one that rules, again and again, until it has answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from regency.controller.topics.creation import CreatedTopic, NewTopic
from regency.model.kafka_errors import ErrorCode
from simulation.cluster.channels import CLIENTS
from simulation.cluster.controller import CreateAsked
from simulation.cluster.edges import ask
from simulation.kernel.scheduler import Process
from simulation.network import NetFailed
from simulation.shape import TopicShape
from simulation.world import World

AGAIN_US = 200_000
TIMEOUT_MS = 3_000
TRIES = 5


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


class Client:
    """Asks whoever rules until somebody answers, or it has had enough. The same request may so be done twice.

    `told` says in a few words what was answered.
    """

    def __init__(
        self,
        world: World,
        make: Callable[[], object],
        told: Callable[[Any], object],
        *,
        tries: int = TRIES,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self.answer: Any = None
        self.process = Process(world.scheduler, "client")
        self._world = world
        self._make = make
        self._told = told
        self._tries = tries
        self._timeout_ms = timeout_ms
        world.scheduler.spawn(self.process, "client", self._run)

    def _run(self) -> None:
        world = self._world
        for _ in range(self._tries):
            address = ruling_endpoint(world)
            if address is not None:
                answer = ask(
                    world.scheduler, world.network, self.process, CLIENTS, address, self._make(), self._timeout_ms
                )
                if not isinstance(answer, NetFailed | Exception):
                    world.note("admin", "client", "is answered %s", self._told(answer))
                    self.answer = answer
                    return
            world.scheduler.sleep_us(AGAIN_US)


def ruling_endpoint(world: World) -> str | None:
    """Where the newest controller is that any live agent knows."""
    rulings = [agent.metadata.ruling for agent in world.agents.values() if agent.process.alive]
    known = [ruling for ruling in rulings if ruling is not None]
    return max(known, key=lambda ruling: ruling.epoch).endpoint if known else None


def _new_topic(topic: TopicShape) -> NewTopic:
    configs = {"min.insync.replicas": str(topic.min_insync), **dict(topic.configs)}
    if topic.unclean:
        configs["unclean.leader.election.enable"] = "true"
    return NewTopic(topic.name, topic.partitions, topic.replication_factor, (), configs)
