"""Topics that are deleted and made anew during a run: which time belongs to both lives, and what they were called."""

from __future__ import annotations

from regency.judge.operations import Recreated
from regency.model.ids import TopicId
from simulation.judging.facts import Facts
from simulation.world import World

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
