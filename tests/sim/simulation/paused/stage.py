"""What the scenes share: a cluster of three, whoever asks it for something, and what scenes look at and wait for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from regency.controller.events import Request
from regency.controller.topics.creation import CreateTopics, NewTopic
from regency.model import znodes
from regency.model.facts import LeaderAndIsr, ReplicaAssignment, TopicAssignment
from regency.model.ids import BrokerId, TopicPartition, ZkVersion
from regency.model.znodes import paths
from simulation.admin import Client
from simulation.cluster.channels import KAFKA, host_of
from simulation.cluster.controller import Asked
from simulation.faults.points import Points
from simulation.judging.judges import Judges
from simulation.kernel.scheduler import Process
from simulation.paused.watch import Watch
from simulation.world import World

Step = float | Callable[[], bool]
"""What a scene waits for: seconds, or until something is so."""

Script = Generator[Step, None, None]
Scene = Callable[["Stage"], Script]

FIRST, SECOND, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
"""The brokers; the first is the first to rule. The first and the third have two log directories each."""

TIMEOUT_MS: Final = 6_000
MANY: Final = 1_000_000
CONTACT_US: Final = 1_000


class Stage:
    """A world and its judges, for a scene."""

    def __init__(self, world: World, judges: Judges, points: Points, watch: Watch) -> None:
        self.world = world
        self.judges = judges
        self.count = watch.begin
        """From here on writes and requests count."""
        self._points = points
        self._watch = watch
        self._clients: list[Client] = []

    def end(self) -> None:
        for client in self._clients:
            client.process.kill()

    # The cluster

    def cluster(self) -> Script:
        """Start all brokers, the first alone until it rules."""
        self.world.start_agent(FIRST)
        yield lambda: self.ruler == FIRST
        self.world.start_agent(SECOND)
        self.world.start_agent(THIRD)
        yield self.is_well

    def is_well(self) -> bool:
        """Whether there is nothing left to do, for anybody."""
        return len(self.registered) == len(self.world.hosts) and not self.judges.not_converged()

    @property
    def ruler(self) -> BrokerId | None:
        host = self.world.ruler()
        if host is None or host.controller is None or host.controller.controller is None:
            return None
        return host.broker if host.controller.process.alive and host.controller.controller.view.ruling else None

    @property
    def registered(self) -> Mapping[BrokerId, int]:
        read = self.world.zookeeper.read
        found = {broker: read(paths.broker(broker)) for broker in self.world.hosts}
        return {broker: znode.stat.czxid for broker, znode in found.items() if znode is not None}

    def kill(self, broker: BrokerId) -> None:
        """Kill an agent; its session ends with it, and so does its controller's."""
        self.world.kill_agent(broker)
        for name in (f"agent-{broker}", f"controller-{broker}"):
            if name in self.world.zk_links:
                self.world.zk_links[name].expire()

    def restart(self, broker: BrokerId) -> Callable[[], bool]:
        """Kill an agent and start it at once. What to wait for: that it is registered again."""
        before = self.registered[broker]
        self.world.kill_agent(broker)
        self.world.start_agent(broker)
        return lambda: self.registered.get(broker, before) != before

    def restart_at(self, point: str, broker: BrokerId) -> None:
        """Have an agent restart, and register again, when whoever rules is at a crash point next."""
        scheduler = self.world.scheduler

        def restart(process: Process) -> None:
            has_registered = self.restart(broker)
            while process.alive and not process.paused and not has_registered():
                scheduler.sleep_us(CONTACT_US)

        self._points.arm([f"controller-{self.ruler}"], [point], restart)

    def dethrone(self) -> Step:
        """Somebody deletes /controller. What to wait for: that somebody rules again."""
        before = self.world.zookeeper.read(paths.CONTROLLER_EPOCH)
        self.world.zookeeper.delete_as_admin(paths.CONTROLLER)
        return lambda: self.ruler is not None and self.world.zookeeper.read(paths.CONTROLLER_EPOCH) != before

    def leave_alone(self, leader: BrokerId, *followers: BrokerId) -> Script:
        """These brokers leave the ISRs and copy nothing from the leader any more, so that they stay out of them."""
        for broker in followers:
            self._watch.silenced.add((host_of(broker), f"{host_of(leader)}:{KAFKA}"))
            before = self.registered[broker]
            self.world.zk_links[f"agent-{broker}"].expire()
            yield partial(self._has_left, broker, before)

    def reconcile(self) -> None:
        self._watch.silenced.clear()

    def lose_contact(self, broker: BrokerId) -> Callable[[], bool]:
        """Whoever rules cannot write although its session lives, gives up, and cannot take /controller away either.

        Returns whether it has come to that. Between the losses there is contact, so that it does not just wait.
        """
        name, points, scheduler = f"controller-{broker}", self._points, self.world.scheduler
        link, sim = self.world.zk_links[name], self.world.controllers[broker]
        gave_up: list[bool] = []

        def lose(_: Process) -> None:
            if not gave_up:
                link.lose_next_request()
                points.arm([name], ["fenced.batches.after_replies"], wait)

        def wait(process: Process) -> None:
            while process.alive and not process.paused and sim.session is not None and not sim.session.connected:
                scheduler.sleep_us(CONTACT_US)
            points.arm([name], ["fenced.batches.before_send"], lose)

        def release(_: Process) -> None:
            link.lose_next_request()
            gave_up.append(True)

        points.arm([name], ["controller.resignation.before_release"], release)
        points.arm([name], ["fenced.batches.before_send"], lose)
        return lambda: bool(gave_up)

    def while_nobody_rules(self, work: Callable[[], object]) -> Script:
        """Have something done between two terms: whoever rules next finds it."""
        controllers = [host.controller_process for host in self.world.hosts.values()]
        standing = [process for process in controllers if process is not None and process.alive]
        for process in standing:
            process.pause()
        rules_again = self.dethrone()
        work()
        yield 0.2
        for process in standing:
            process.resume()
        yield rules_again

    def remove_topic(self, name: str) -> None:
        """Another tool removes a topic's znodes; nobody has asked for the deletion of its logs."""
        self.judges.facts.removed.add(name)
        self._remove(paths.topic(name))

    def _remove(self, path: str) -> None:
        for name in self.world.zookeeper.children(path):
            self._remove(f"{path}/{name}")
        assert self.world.zookeeper.delete_as_admin(path)

    # Who asks

    def ask(self, make: Callable[[], Request[Any]]) -> Step:
        """A client asks whoever rules for something. What to wait for: its answer."""
        return self.ask_as_agent_does(lambda: Asked(make))

    def ask_as_agent_does(self, make: Callable[[], object]) -> Step:
        """The same of what is on the network as agents send it."""
        client = Client(self.world, make, lambda answer: answer, tries=MANY, timeout_ms=TIMEOUT_MS)
        self._clients.append(client)
        return lambda: client.answer is not None

    def create(self, name: str, *replicas: Sequence[BrokerId], **settings: str) -> Script:
        """A client creates a topic, with these replicas of its partitions, and waits until they are in sync."""
        configs = {key.replace("_", "."): value for key, value in settings.items()}
        if configs.get("unclean.leader.election.enable") == "true":
            self.judges.facts.unclean_topics.add(name)
        assignments = tuple((number, tuple(each)) for number, each in enumerate(replicas))
        wanted = NewTopic(name, assignments=assignments, configs=configs)
        yield self.ask(lambda: CreateTopics((wanted,), validate_only=False))
        yield self.is_well

    # Other tools

    def write(self, path: str, data: bytes, *, new: bool = False) -> None:
        assert self.world.zookeeper.write_as_admin(path, data, new=new)

    def write_topic(self, name: str, *replicas: Sequence[BrokerId]) -> None:
        """Another tool writes a topic, or one with more partitions over it, and knows nothing of topic ids."""
        before = self.world.zookeeper.read(paths.topic(name))
        known = self.topic(name) if before is not None else None
        partitions = {} if known is None else dict(known.partitions)
        partitions.update({len(partitions) + at: ReplicaAssignment(tuple(each)) for at, each in enumerate(replicas)})
        topic_id = None if known is None else known.topic_id
        topic = TopicAssignment(name, partitions, topic_id, ZkVersion(0), 0)
        self.write(paths.topic(name), znodes.encode_topic(topic, previous=None if before is None else before.data))

    def set_config(self, name: str, **settings: str) -> None:
        """Another tool changes settings of a topic, and tells."""
        configs = {key.replace("_", "."): value for key, value in settings.items()}
        self.write(paths.topic_config(name), znodes.encode_config(configs))
        self.write(paths.config_change_prefix(), znodes.encode_config_change(f"topics/{name}"), new=True)

    # What scenes look at

    def topic(self, name: str) -> TopicAssignment:
        path = paths.topic(name)
        znode = self.world.zookeeper.read(path)
        assert znode is not None
        version = ZkVersion(znode.stat.version)
        return znodes.decode_topic(path, znode.data, topic=name, zk_version=version, czxid=znode.stat.czxid)

    def is_gone(self, name: str) -> bool:
        """Whether neither a topic nor a wish to delete it is there."""
        read = self.world.zookeeper.read
        return read(paths.topic(name)) is None and read(paths.delete_topic(name)) is None

    def replicas(self, name: str, number: int = 0) -> ReplicaAssignment:
        return self.topic(name).partitions[number]

    def state(self, name: str, number: int = 0) -> LeaderAndIsr | None:
        path = paths.partition_state(TopicPartition(name, number))
        znode = self.world.zookeeper.read(path)
        return None if znode is None else znodes.decode_state(path, znode.data, zk_version=ZkVersion(0)).leader_and_isr

    def leads(self, broker: BrokerId, name: str, number: int = 0) -> Callable[[], bool]:
        """Whether a broker is elected; -1 for nobody."""
        return partial(self._leads, broker, name, number)

    def in_sync(self, name: str, number: int = 0) -> tuple[BrokerId, ...]:
        """The ISR of a partition, sorted; none where it has no state."""
        state = self.state(name, number)
        return () if state is None else tuple(sorted(state.isr))

    def _has_left(self, broker: BrokerId, before: int) -> bool:
        states = self._states()
        return self.registered.get(broker, before) != before and all(broker not in state.isr for state in states)

    def _states(self) -> list[LeaderAndIsr]:
        names = self.world.zookeeper.children(paths.TOPICS)
        found = [self.state(name, number) for name in names for number in self.topic(name).partitions]
        return [state for state in found if state is not None]

    def _leads(self, broker: BrokerId, name: str, number: int) -> bool:
        state = self.state(name, number)
        return state is not None and state.leader == broker
