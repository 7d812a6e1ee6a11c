"""Elections somebody asks for at bad moments, brokers that ask to leave and stay, words of failed directories."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from regency.controller.elections.leader_elections import ElectionType, ElectLeaders
from regency.controller.events import Request
from regency.model import znodes
from regency.model.ids import NO_BROKER_EPOCH, BrokerId, TopicPartition, ZkVersion
from regency.model.znodes import paths
from simulation.admin import AGAIN_US, TIMEOUT_MS, ruling_endpoint
from simulation.cluster.channels import CLIENTS
from simulation.cluster.controller import Asked, ShutdownAsked
from simulation.cluster.edges import ask
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.stage import Deed, Stage
from simulation.kernel.scheduler import Process
from simulation.network import NetFailed
from simulation.world import Host, World

TRIES: Final = 5
MALFORMED: Final = (b"", b"{", b'{"version":1,"partitions":[{"topic":"blue"}]}', b"\xff")


def deeds(stage: Stage) -> dict[Kind, Deed]:
    faults = _ElectionFaults(stage)
    return {
        Kind.ELECT_PREFERRED: faults.elect_preferred,
        Kind.ELECT_BY_ZNODE: faults.elect_by_znode,
        Kind.ELECT_UNCLEAN: faults.elect_unclean,
        Kind.LEAVE_AND_STAY: faults.leave_and_stay,
        Kind.LOG_DIR_EVENT: faults.log_dir_event,
    }


class Asker:
    """A client that asks the ruling controller until somebody answers, or it has had enough."""

    def __init__(self, world: World, request: Callable[[], Any], told: Callable[[Any], str]) -> None:
        self._world = world
        self._request = request
        self._told = told
        self._process = Process(world.scheduler, "elector")
        world.scheduler.spawn(self._process, "elector", self._run)

    def _run(self) -> None:
        world = self._world
        for _ in range(TRIES):
            address = ruling_endpoint(world)
            if address is not None:
                request = self._request()
                answer = ask(world.scheduler, world.network, self._process, CLIENTS, address, request, TIMEOUT_MS)
                if not isinstance(answer, NetFailed | Exception):
                    world.note("admin", "elector", "is answered %s", self._told(answer))
                    return
            world.scheduler.sleep_us(AGAIN_US)


class _ElectionFaults:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world
        self._zookeeper = stage.world.zookeeper

    def elect_preferred(self, fault: Fault, host: Host) -> None:
        """A client wants the preferred replicas to lead: of all partitions, of some, of some that there are not."""
        del host
        chance = fault.chance()
        wanted = None if chance.random() < 0.4 else tuple(chance.sample(self._partitions(), 2))
        self._elect(ElectionType.PREFERRED, wanted)

    def elect_unclean(self, fault: Fault, host: Host) -> None:
        """A client wants leaders at any price, of topics that allow it; else of partitions that there are not.

        By chance the settings of such a topic stop allowing it and the whole ISR of one of its partitions dies, so that
        only the request makes somebody lead, and is asked several times: before, while and after nobody does.
        """
        del host
        unclean = [topic for topic in self._world.shape.topics if topic.unclean]
        if not unclean:
            self._elect(ElectionType.UNCLEAN, (TopicPartition("nothing", 0),))
            return
        chance = fault.chance()
        wanted = [TopicPartition(topic.name, number) for topic in unclean for number in range(topic.partitions)]
        if chance.random() < 0.6:
            self._kill_isr(chance.choice(wanted), fault.lossy)
        for _ in range(8):
            delay_us = int(chance.random() * 8 * SECOND_US)
            self._stage.later(delay_us, partial(self._elect, ElectionType.UNCLEAN, tuple(wanted)))

    def _kill_isr(self, partition: TopicPartition, lossy: bool) -> None:
        path = paths.partition_state(partition)
        znode = self._zookeeper.read(path)
        if znode is None:
            return
        self._forbid(partition.topic)
        for member in znodes.decode_state(path, znode.data, zk_version=ZkVersion(0)).leader_and_isr.isr:
            each = self._world.hosts[member]
            self._stage.die(each, lossy=lossy)
            self._stage.later(7 * SECOND_US, self._stage.keep_down(each))

    def _forbid(self, topic: str) -> None:
        """Settings of the topic allow no unclean election any more, and everybody is told."""
        path = paths.topic_config(topic)
        before = self._zookeeper.read(path)
        config = {} if before is None else znodes.decode_config(path, before.data)
        data = znodes.encode_config({**config, "unclean.leader.election.enable": "false"})
        if self._zookeeper.write_as_admin(path, data):
            told = znodes.encode_config_change(f"topics/{topic}")
            self._zookeeper.write_as_admin(paths.config_change_prefix(), told, new=True)

    def elect_by_znode(self, fault: Fault, host: Host) -> None:
        """Another tool writes what it wants elected into ZooKeeper, now and then something that cannot be read."""
        del host
        chance = fault.chance()
        content = znodes.encode_preferred_election(chance.sample(self._partitions(), 3))
        if chance.random() < 0.2:
            content = chance.choice(MALFORMED)
        self._stage.note("admin", "preferred leaders are asked for in zookeeper")
        self._zookeeper.write_as_admin(paths.PREFERRED_ELECTION, content)

    def leave_and_stay(self, fault: Fault, host: Host) -> None:
        """A broker asks to leave, and thinks better of it."""
        del fault
        agent = self._world.agents.get(host.broker)
        if agent is None or not agent.process.alive or agent.leaving or agent.broker_epoch() == NO_BROKER_EPOCH:
            return  # whoever never registered leads nothing, and knows nobody to ask
        request = ShutdownAsked(host.broker, agent.broker_epoch())
        self._stage.note(host.name, "asks to leave, and will stay")
        Asker(self._world, lambda: request, lambda answer: f"{answer.error.name}, {len(answer.remaining)} remain")

    def log_dir_event(self, fault: Fault, host: Host) -> None:
        """A notification that a directory has failed comes late, or is of nobody."""
        broker = host.broker if fault.detail < 0.9 else BrokerId(99)
        self._stage.note("admin", "a log directory of broker %d is said to have failed", broker)
        self._zookeeper.write_as_admin(paths.log_dir_event_prefix(), znodes.encode_log_dir_event(broker), new=True)

    def _elect(self, election: ElectionType, partitions: tuple[TopicPartition, ...] | None) -> None:
        def request() -> Asked:
            make: Callable[[], Request[Any]] = lambda: ElectLeaders(election, partitions)  # noqa: E731
            return Asked(make)

        Asker(self._world, request, lambda answer: str([f"{each.partition} {each.error.name}" for each in answer]))

    def _partitions(self) -> list[TopicPartition]:
        """Those of the run's topics, and one of each that there is not."""
        return [
            TopicPartition(topic.name, number)
            for topic in self._world.shape.topics
            for number in range(topic.partitions + 1)
        ]
