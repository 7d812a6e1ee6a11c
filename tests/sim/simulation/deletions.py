"""Whoever deletes a topic and, as a rule, makes one of the same name anew, as soon as that is possible; and which time
belongs to both lives of a topic.
"""

from __future__ import annotations

from typing import Any

from regency.controller.topics.deletion_requests import DeleteTopics, TopicRef
from regency.judge.operations import Recreated
from regency.model.ids import TopicId
from regency.model.znodes import paths
from simulation.admin import AGAIN_US, TIMEOUT_MS, Admin, ruling_endpoint
from simulation.cluster.channels import CLIENTS
from simulation.cluster.controller import Asked
from simulation.cluster.edges import ask
from simulation.judging.facts import Facts
from simulation.kernel.scheduler import Process
from simulation.shape import TopicShape
from simulation.world import World


class Deletion:
    """Asks again and again until the topic has left ZooKeeper; then creates it anew, where `anew` says how.

    A request names the topic by its id: one that arrives late must not hit the topic that is made anew. The marker of
    another tool is written once. Until all is done the world knows of the errand.
    """

    def __init__(self, world: World, name: str, topic_id: TopicId, *, by_marker: bool, anew: TopicShape | None) -> None:
        self._world = world
        self._name = name
        self._topic_id = topic_id
        self._anew = anew
        self._errand = f"{name} is to be deleted{'' if anew is None else ' and made anew'}"
        self._process = Process(world.scheduler, "deleter")
        world.errands.append(self._errand)
        if by_marker:
            world.zookeeper.write_as_admin(paths.delete_topic(name), b"")
        world.scheduler.spawn(self._process, "deleter", lambda: self._run(by_marker))

    def _run(self, by_marker: bool) -> None:
        while self._is_there():
            self._world.scheduler.sleep_us(AGAIN_US)
            if not by_marker and self._is_there():
                self._ask()
        self._world.note("admin", "deleter", "topic %s has left zookeeper", self._name)
        if self._anew is None:
            self._done()
        else:
            Admin(self._world, (self._anew,), self._done)

    def _is_there(self) -> bool:
        return self._world.topic_id(self._name) == self._topic_id or (
            self._world.zookeeper.read(paths.delete_topic(self._name)) is not None
        )

    def _ask(self) -> Any:
        address = ruling_endpoint(self._world)
        if address is None:
            return None
        world = self._world
        request = Asked(lambda: DeleteTopics((TopicRef(topic_id=self._topic_id),)))
        return ask(world.scheduler, world.network, self._process, CLIENTS, address, request, TIMEOUT_MS)

    def _done(self) -> None:
        self._world.errands.remove(self._errand)


LOOK_US = 50_000
LATE_ANSWERS_US = 6_000_000
"""Nobody waits so long for an answer of the life before."""


class Recreations:
    """Watches every topic from its deletion on until nobody has anything of the life before any more."""

    def __init__(self, world: World, facts: Facts) -> None:
        self._world = world
        self._facts = facts
        self._lives: list[_Life] = []

    def begin(self, name: str) -> None:
        """The topic is about to be deleted; it must have an id."""
        topic_id = self._world.topic_id(name)
        assert topic_id is not None
        life = _Life(name, topic_id, self._world.scheduler.now_us)
        self._lives.append(life)
        self._facts.recreating.add(name)
        self._look(life)

    def operations(self) -> list[Recreated]:
        """What the judge of histories has to know."""
        recreated = []
        for life in self._lives:
            topic_id = self._world.topic_id(life.name)
            ids = str(life.topic_id), str(topic_id)
            recreated.append(Recreated(life.name, life.began_us // 1_000, life.old_until_us // 1_000 + 1, *ids))
        return recreated

    def _look(self, life: _Life) -> None:
        scheduler = self._world.scheduler
        if self._world.topic_id(life.name) in (None, life.topic_id) or self._is_somewhere(life):
            life.old_until_us = scheduler.now_us + LOOK_US
        if scheduler.now_us < life.old_until_us + LATE_ANSWERS_US:
            scheduler.at(LOOK_US, lambda: self._look(life))
        else:
            self._facts.recreating.discard(life.name)

    def _is_somewhere(self, life: _Life) -> bool:
        """Whether a live agent may still answer for the life before."""
        return any(
            held.topic_id == life.topic_id
            for agent in self._world.agents.values()
            if agent.process.alive and agent.replicas is not None
            for partition, held in agent.replicas.partitions.items()
            if partition.topic == life.name
        )


class _Life:
    """The life of a topic before it was made anew."""

    __slots__ = ("began_us", "name", "old_until_us", "topic_id")

    def __init__(self, name: str, topic_id: TopicId, now_us: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.began_us = now_us
        self.old_until_us = now_us
