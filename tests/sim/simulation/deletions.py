"""Whoever deletes a topic and, as a rule, makes one of the same name anew, as soon as that is possible."""

from __future__ import annotations

from typing import Any

from regency.controller.topics.deletion_requests import DeleteTopics, TopicRef
from regency.model.ids import TopicId
from regency.model.znodes import paths
from simulation.admin import AGAIN_US, TIMEOUT_MS, Admin, ruling_endpoint
from simulation.cluster.addresses import CLIENTS
from simulation.cluster.controller import Asked
from simulation.cluster.edges import ask
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
