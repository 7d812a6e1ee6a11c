"""A whole simulated cluster: hosts with their disks, agents, controllers, ZooKeeper and the network between them.

Starting, killing and healing; what goes wrong and when is decided elsewhere (faults/), and so is what must hold
(judging/).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from regency.model import znodes
from regency.model.errors import RegencyError
from regency.model.facts import TopicAssignment
from regency.model.ids import BrokerId, TopicId, ZkVersion
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.session import ZkSession
from simulation.cluster.agent import SimAgent
from simulation.cluster.channels import host_of
from simulation.cluster.controller import SimController
from simulation.disk import SimDisk
from simulation.kernel.clock import TRUE_RATE_PPM, ProcessClock
from simulation.kernel.scheduler import Process, Scheduler
from simulation.network import Network
from simulation.shape import Shape, settings_of
from simulation.zookeeper.ensemble import Ensemble
from simulation.zookeeper.link import ZkLink
from simulation.zookeeper.session_port import SimZkSession

SESSION_MS = 3_000
CHILD_AGAIN_US = 300_000
"""How long an agent takes to start its controller child again."""


AGENT_AGAIN_US = 1_000_000
"""How long a supervisor takes to start an agent again that has ended by itself."""


class Host:
    """A broker's machine: its disk and its clocks stay, its processes come and go."""

    def __init__(self, world: World, broker: BrokerId) -> None:
        self.broker = broker
        self.name = host_of(broker)
        self.disk = SimDisk(world.scheduler)
        self.clock = ProcessClock(world.scheduler)
        self.agent: SimAgent | None = None
        self.controller: SimController | None = None
        self.starts = 0
        self.children = 0

    @property
    def agent_process(self) -> Process | None:
        return self.agent.process if self.agent is not None else None

    @property
    def controller_process(self) -> Process | None:
        return self.controller.process if self.controller is not None else None


class World:
    """Everything there is in a run, but clients and judges."""

    def __init__(self, scheduler: Scheduler, shape: Shape) -> None:
        self.scheduler = scheduler
        self.shape = shape
        self.network = Network(scheduler)
        self.zookeeper = Ensemble(scheduler)
        self.hosts = {BrokerId(number): Host(self, BrokerId(number)) for number in range(1, shape.brokers + 1)}
        self.agents: dict[BrokerId, SimAgent] = {}
        """The agent of every broker that was ever started, alive or dead, by number."""
        self.zk_links: dict[str, ZkLink] = {}
        self.errands: list[str] = []
        """What clients of the cluster have begun and will go on with, in words."""
        self.on_standing: list[Callable[[SimAgent], None]] = []
        """Told of every agent whose data loop stands still from now on."""
        self.on_started: list[Callable[[SimAgent], None]] = []
        """Told of every agent process that begins."""
        self.turn_us: Callable[[], int] | None = None
        """How long long work on a data loop waits for its next turn; None where there are no groups."""

    @property
    def controllers(self) -> dict[BrokerId, SimController]:
        """The controller of every broker, alive or dead."""
        return {broker: host.controller for broker, host in self.hosts.items() if host.controller is not None}

    # Processes

    def start_agent(self, broker: BrokerId) -> None:
        """Start an agent and its controller child, unless it runs."""
        host = self.hosts[broker]
        if host.agent is not None and host.agent.process.alive:
            return
        host.starts += 1
        process = Process(self.scheduler, f"agent-{broker}", incarnation=host.starts, clock=host.clock)
        settings = settings_of(self.shape, broker)
        agent = SimAgent(
            self.scheduler,
            self.network,
            process,
            settings,
            host.disk.mount(process),
            self._open_session,
            turn_us=self.turn_us,
        )
        host.agent = agent
        self.agents = {each: host.agent for each, host in self.hosts.items() if host.agent is not None}
        process.on_death(lambda: self._agent_died(host, agent))
        self.note("start", process.name, "process %d starts", host.starts)
        self.scheduler.spawn(process, "main", lambda: self._main(host, agent))
        self._start_controller(host)
        for callback in self.on_started:
            callback(agent)

    def _main(self, host: Host, agent: SimAgent) -> None:
        """What `regency agent` does: an error at the start ends the process, and whoever supervises it tries again."""
        agent.on_end = partial(self._ends, host, agent)
        agent.on_stop_asked = lambda: self.stop_agent(host.broker, partial(self._start_again, host.broker))
        try:
            agent.start()
        except RegencyError as error:
            agent.on_end(str(error))

    def _ends(self, host: Host, agent: SimAgent, why: str) -> None:
        self.note("ends", agent.process.name, "%s", why)
        agent.process.kill()
        self.scheduler.at(AGENT_AGAIN_US, lambda: self.start_agent(host.broker))

    def kill_agent(self, broker: BrokerId, *, lossy: bool = False, wholly: bool = False) -> None:
        """SIGKILL an agent, whose child dies with it; or, lossy, the whole machine loses power (see SimDisk.crash)."""
        host = self.hosts[broker]
        process = host.agent_process
        if process is not None and process.alive:
            process.kill()
        if lossy:
            host.disk.crash(lossy=True, wholly=wholly)

    def stand_still(self, agent: SimAgent) -> None:
        """Its data loop stands still; when everything heals it does not go on by that, as if a disk never answered."""
        agent.process.stand()
        for callback in self.on_standing:
            callback(agent)

    def kill_controller(self, broker: BrokerId) -> None:
        """SIGKILL a controller child; its agent starts another."""
        process = self.hosts[broker].controller_process
        if process is not None and process.alive:
            self.note("kill", process.name, "dies")
            process.kill()

    def stop_agent(self, broker: BrokerId, then: Callable[[], None]) -> None:
        """SIGTERM: leadership is moved away, then it stops in order; `then` is called when it is gone."""
        agent = self.hosts[broker].agent
        if agent is None or not agent.process.alive or agent.service is None or agent.leaving:
            then()
            return
        running = agent
        running.leaving = True  # also where the process is paused: it stops when it goes on

        def leave() -> None:
            running.leave()
            running.stop()
            running.process.kill()

        def died() -> None:
            self.scheduler.at(0, then)

        agent.process.on_death(died)
        process = agent.process
        if process.loop_stands:  # on which the signal is heard
            self.scheduler.at(0, lambda: self.scheduler.spawn(process, "leave", leave), process, of_loop=True)
        else:
            self.scheduler.spawn(process, "leave", leave)

    def _agent_died(self, host: Host, agent: SimAgent) -> None:
        self.note("died", agent.process.name, "process %d is dead", agent.process.incarnation)
        child = host.controller_process
        if child is not None and child.alive:
            child.kill()

    def _start_controller(self, host: Host) -> None:
        host.children += 1
        process = Process(self.scheduler, f"controller-{host.broker}", incarnation=host.children, clock=host.clock)
        settings = settings_of(self.shape, host.broker)
        controller = SimController(self.scheduler, self.network, process, settings, self._open_session)
        host.controller = controller
        process.on_death(lambda: self._controller_died(host))
        self.scheduler.spawn(process, "controller-event-thread", lambda: self._rule(controller))

    def _rule(self, controller: SimController) -> None:
        """What `python -m regency.controller` does: an error at the start ends the process."""
        try:
            controller.start()
        except RegencyError as error:
            self.note("ends", controller.process.name, "%s", error)
            controller.process.kill()

    def _controller_died(self, host: Host) -> None:
        agent = host.agent_process
        if agent is not None and agent.alive:
            self.scheduler.at(CHILD_AGAIN_US, lambda: self._start_controller(host), agent)

    # ZooKeeper

    def ruler(self) -> Host | None:
        znode = self.zookeeper.read(znode_paths.CONTROLLER)
        return None if znode is None else self.hosts[znodes.decode_controller(znode.path, znode.data)]

    def _open_session(self, process: Process) -> ZkSession:
        link = self.zk_links.get(process.name)
        if link is None:  # what is wrong with it outlasts the process
            link = self.zk_links[process.name] = ZkLink(self.scheduler)
        return SimZkSession.connect(
            self.scheduler, process, self.zookeeper, link, session_timeout_ms=SESSION_MS, name=process.name
        )

    # The end of faults

    def heal(self) -> None:
        """Everything works again: links, disks, clocks, paused and dead processes."""
        self.network.heal()
        self.zookeeper.heal()
        for link in self.zk_links.values():
            link.heal()
        for broker, host in self.hosts.items():
            host.disk.heal()
            host.clock.drift(TRUE_RATE_PPM)
            if self.shape.clocks_heal:
                host.clock.set_right()
            for process in (host.agent_process, host.controller_process):
                if process is not None:
                    process.speed_up()
                    process.resume()
            agent = host.agent
            if agent is not None and agent.process.alive and agent.logs is not None and agent.logs.offline_dirs:
                self.note("heal", agent.process.name, "is restarted: a log directory of it is offline")
                agent.process.kill()
            if agent is not None and agent.process.alive and agent.leaving:
                agent.process.on_death(partial(self._start_again, broker))
            self.start_agent(broker)

    def holds(self, host: Host, topic: str, topic_id: TopicId | None = None) -> bool:
        """Whether a live agent has partitions of a topic; without id, of whichever of that name."""
        agent = host.agent
        if agent is None or not agent.process.alive or agent.replicas is None:
            return False
        return any(
            name.topic == topic and topic_id in (None, partition.topic_id)
            for name, partition in agent.replicas.partitions.items()
        )

    def topic_id(self, name: str) -> TopicId | None:
        """The id of a topic in ZooKeeper; None where it has none."""
        topic = self._topic(name)
        return None if topic is None else topic.topic_id

    def partitions_of(self, name: str) -> int:
        """How many partitions a topic has in ZooKeeper; 0 where it is not there."""
        topic = self._topic(name)
        return 0 if topic is None else len(topic.partitions)

    def _topic(self, name: str) -> TopicAssignment | None:
        path = znode_paths.topic(name)
        znode = self.zookeeper.read(path)
        if znode is None:
            return None
        version = ZkVersion(znode.stat.version)
        return znodes.decode_topic(path, znode.data, topic=name, zk_version=version, czxid=znode.stat.czxid)

    def _start_again(self, broker: BrokerId) -> None:
        """Whoever still leaves when everything is well is wanted again once it has gone."""
        self.scheduler.at(AGENT_AGAIN_US, partial(self.start_agent, broker))

    def note(self, kind: str, who: str, words: str, *values: object) -> None:
        self.scheduler.trace.note(kind, who, words, *values)
