"""A reassignment is carried on after its controller died, at whatever place that was."""

from __future__ import annotations

import pytest

from regency.controller.reassignment.requests import AlterReassignments
from regency.model import znodes
from regency.model.crash_points import observe
from regency.model.facts import ReplicaAssignment
from regency.model.ids import TopicPartition
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb

T0 = TopicPartition("t", 0)
PARTS = 20
"""The places are shared among so many tests."""


class Died(BaseException):
    """The controller's process is gone."""


class Story:
    """A reassignment whose controller dies at the place of a number, counted from 1; 0: it lives."""

    def __init__(self, world, place: int) -> None:
        self.world = world
        self.place = place
        self.passed = 0
        world.start_brokers(1, 2, 3, 4)
        world.candidate(1)
        world.write_topic("t", {0: [1, 2], 1: [1, 2]})

    def observe(self, _name: str) -> None:
        self.passed += 1
        if self.passed == self.place:
            raise Died

    def do(self, act) -> None:
        """Do something; where the controller dies of it, another takes over and whoever waits asks again."""
        observe(self.observe)
        try:
            act()
        except Died:
            observe(None)
            dead = self.world.candidates.pop(0)
            self.world.ensemble.expire(dead.session.session_id)
            dead.channels.close()
            self.world.candidate(2)
            act()
        finally:
            observe(None)

    def ask(self, **targets) -> None:
        moves = tuple((TopicPartition("t", int(number[1:])), to) for number, to in targets.items())
        self.do(lambda: self.world.candidates[0].ask(AlterReassignments(moves)))

    def write(self, *replicas: int) -> None:
        data = znodes.encode_asked_moves([(T0, replicas)])

        def put() -> None:
            if self.assigned(0).target != replicas:
                self.world.ensemble.put(paths.REASSIGN_PARTITIONS, data)
            self.world.settle()

        self.do(put)

    def sync(self, number: int, *isr: int) -> None:
        def take_in() -> None:
            leader, before, epoch, controller = self.world.state("t", number)
            if set(isr) - set(before) and self.assigned(number).is_reassigning:
                self.world.write_state("t", number, leader, isr, epoch=epoch, controller=controller)
            self.world.notify_isr_change(TopicPartition("t", number))

        self.do(take_in)

    def assigned(self, number: int) -> ReplicaAssignment:
        data = self.world.ensemble.nodes[paths.topic("t")].data
        return znodes.decode_topic("/", data, topic="t", zk_version=0, czxid=0).partitions[number]

    def told_to_delete(self) -> set[tuple[int, int]]:
        """Brokers and partitions of all orders to delete."""
        return {
            (broker, number)
            for broker, agent in self.world.agents.items()
            for stop in agent.of(pb.StopReplicaRequest)
            for topic in stop.topics
            for number, delete in zip(topic.partition, topic.delete_partition, strict=True)
            if delete
        }


def moved(story: Story) -> None:
    """Two partitions move, one of them by the znode; one is stopped halfway and sent elsewhere."""
    story.write(3, 4)
    story.ask(t1=(3,))
    story.ask(t1=(1, 4))
    story.sync(0, 1, 2, 3, 4)
    story.sync(1, 1, 2, 4)

    assert story.assigned(0) == ReplicaAssignment((3, 4))
    assert story.assigned(1) == ReplicaAssignment((1, 4))
    assert story.world.state("t")[:2] == (3, (3, 4))
    assert story.world.state("t", 1)[:2] == (1, (1, 4))
    assert story.told_to_delete() >= {(1, 0), (2, 0), (2, 1)}
    assert paths.REASSIGN_PARTITIONS not in story.world.ensemble.nodes


def cancelled(story: Story) -> None:
    """One is begun and cancelled, while a replica that is added is in sync already."""
    story.ask(t0=(3, 4))
    story.sync(0, 1, 2, 3)
    story.ask(t0=None)

    assert set(story.assigned(0).replicas) == {1, 2}
    assert not story.assigned(0).is_reassigning and not story.assigned(0).deleting
    assert story.world.state("t")[:2] == (1, (1, 2))
    assert story.told_to_delete() >= {(3, 0), (4, 0)}


@pytest.mark.parametrize("scenario", [moved, cancelled])
@pytest.mark.parametrize("part", range(PARTS))
def test_whoever_rules_next_goes_on(new_world, scenario, part) -> None:
    whole = Story(new_world(), 0)
    scenario(whole)
    assert whole.passed > 40
    for place in range(part + 1, whole.passed + 1, PARTS):
        scenario(Story(new_world(), place))
