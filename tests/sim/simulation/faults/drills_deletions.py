"""Drills of deletions: who has to delete is down, who has it done dies amid it, or what was sent before comes after."""

from __future__ import annotations

from contextlib import ExitStack

from regency.kafka.record_batch import read_header
from regency.model.ids import BrokerId, TopicPartition
from simulation.admin import Admin
from simulation.cluster.agent import ProduceAsked
from simulation.cluster.channels import KAFKA
from simulation.deletions import Deletion
from simulation.faults.plan import Fault, Kind
from simulation.faults.scripts import Led, Script, Scripts
from simulation.faults.stage import Deed, Stage
from simulation.kernel.scheduler import Process
from simulation.shape import TopicShape

REMOVALS = ("controller.deletion.before_level_removed", "controller.deletion.before_topics_removed")
"""Where a controller is about to take some of a topic out of ZooKeeper."""


def deeds(stage: Stage) -> dict[Kind, Deed]:
    """The faults of this file."""
    drills = _Drills(stage)
    return {Kind.DRILL_DELETIONS: drills.of(drills.deletions)}


class _Drills(Scripts):
    def deletions(self, fault: Fault, undone: ExitStack) -> Script:
        """The next one, and the last one again and again: whoever rules next would do what was left undone."""
        order = (self.ended_amid_a_deletion, self.sent_before_the_deletion, self.deleted_without_one)
        script = order[min(self._done, len(order)) - 1]
        self._stage.note("drill", "%s", script.__name__.replace("_", " "))
        yield from script(fault, undone)

    def ended_amid_a_deletion(self, fault: Fault, undone: ExitStack) -> Script:
        """Another tool asks for a deletion, and who rules dies when it takes the topic out of ZooKeeper."""
        del undone
        chance = fault.chance()
        yield lambda: bool(self._known())
        name = f"short-{fault.at_us}"
        created = self._create(name)
        yield lambda: bool(created)
        ruler, topic_id = self._ruler(), self._world.topic_id(name)
        if ruler is None or topic_id is None:
            return
        died: list[BrokerId] = []

        def die(process: Process) -> None:
            del process
            died.append(ruler)
            self._world.kill_controller(ruler)
            self._world.zk_links[f"controller-{ruler}"].expire()

        self._stage.points.arm([f"controller-{ruler}"], [chance.choice(REMOVALS)], die)
        Deletion(self._world, name, topic_id, by_marker=True, anew=None)
        yield lambda: bool(died)
        yield lambda: bool(self._known())
        yield 0.5

    def sent_before_the_deletion(self, fault: Fault, undone: ExitStack) -> Script:
        """A produce arrives when its client has sent it again, and its topic has been deleted and made anew."""
        shapes = {each.name: each for each in self._world.shape.topics}

        def able() -> list[Led]:
            return [led for led in self._full() if led.partition.topic in shapes]

        yield lambda: bool(able())
        led = fault.chance().choice(able())
        partition, leader = led.partition, led.state.leader
        name = partition.topic
        topic_id, address = self._world.topic_id(name), f"{self._world.hosts[leader].name}:{KAFKA}"
        assert topic_id is not None
        kept: list[tuple[Process, str, str, ProduceAsked]] = []
        again: list[ProduceAsked] = []

        def keep(caller: Process, source: str, to: str, request: object) -> bool:
            """The first one of a producer without numbers: a new log would refuse others in the midst of them."""
            if not isinstance(request, ProduceAsked) or partition not in request.batches:
                return False
            if kept:
                again.extend([request] if request == kept[0][3] else [])
                return False
            if to != address or read_header(request.batches[partition]).producer_id >= 0:
                return False
            kept.append((caller, source, to, request))
            return True

        network = self._world.network
        network.tap = keep
        undone.callback(setattr, network, "tap", None)
        yield lambda: bool(kept)
        yield lambda: bool(again)
        yield 0.1  # in which that is acknowledged
        apart = undone.enter_context(ExitStack())
        for follower in led.followers:
            apart.enter_context(self._apart(follower, leader))
        yield lambda: self._end(leader, partition) > self._high_watermark(leader, partition)  # some producer waits
        self._stage.told.recreating(name)
        Deletion(self._world, name, topic_id, by_marker=False, anew=shapes[name])
        yield lambda: self._world.topic_id(name) not in (None, topic_id)
        apart.close()
        yield lambda: any(self._leads(each, partition) for each in self._world.hosts)
        if not self._leads(leader, partition):
            self._expire(*(each for each in self._replicas(partition) if each != leader))
        yield lambda: self._leads(leader, partition) and len(self._isr(partition)) == len(self._replicas(partition))
        self._stage.note("drill", "what was sent before the deletion arrives")
        network.deliver(*kept[0])

    def deleted_without_one(self, fault: Fault, undone: ExitStack) -> Script:
        """A topic is deleted by all of its brokers but one, which is dead and returns while the same one rules."""
        chance = fault.chance()
        yield lambda: bool(self._known())
        name = f"short-{fault.at_us}"
        created = self._create(name)
        yield lambda: bool(created)
        partition, ruler, topic_id = TopicPartition(name, 0), self._ruler(), self._world.topic_id(name)
        yield lambda: all(self._held(each, partition) is not None for each in self._replicas(partition))
        able = [each for each in self._replicas(partition) if each != ruler]
        if topic_id is None or not able:
            return
        gone = chance.choice(able)
        down = undone.enter_context(self._end_agent(gone))
        yield lambda: bool(self._known()) and gone not in self._known()
        Deletion(self._world, name, topic_id, by_marker=chance.random() < 0.5, anew=None)
        yield lambda: not any(self._world.holds(host, name) for host in self._world.hosts.values())
        yield 0.2  # in which that is confirmed
        down.close()
        yield lambda: self._known().get(gone) == self._registration(gone) != 0
        yield 1.0

    def _create(self, name: str) -> list[str]:
        """Have a topic created; the list has its name when that is done."""
        created: list[str] = []
        Admin(self._world, (TopicShape(name, 2, 3, 1),), lambda: created.append(name))
        return created
