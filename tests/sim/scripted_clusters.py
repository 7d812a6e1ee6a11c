"""A cluster of three with one partition, and clients that write to it, to which a test does things in its own order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from simulation.judging.judges import Judges
from simulation.judging.log_rules import LogCursor
from simulation.kernel.scheduler import Scheduler
from simulation.kernel.threads import simulated_threads
from simulation.shape import SECOND_US, Shape, Storage, TopicShape
from simulation.workload import Workload
from simulation.world import World

from regency.model import znodes
from regency.model.facts import LeaderAndIsr, ReplicaAssignment, TopicAssignment
from regency.model.ids import BrokerId, TopicPartition
from regency.model.znodes import paths as znode_paths

BLUE = TopicPartition("blue", 0)
STATE = znode_paths.partition_state(BLUE)
STEP_US = 50
"""Between two looks for a moment that must not be missed."""


def _shape(replicas: int) -> Shape:
    topics = (TopicShape("blue", 1, replicas, 1),)
    return Shape("scripted", 3, topics, 0, 0.0, 0.0, 30.0, 0.0, 0, ("plain",), 1.0, 0, Storage())


class ScriptedCluster:
    """Brokers 1 to 3 from two seconds before blue-0 is created on `replicas`; it ends with `stack`."""

    def __init__(self, stack: ExitStack, seed: int, replicas: tuple[BrokerId, ...]) -> None:
        self.scheduler = Scheduler(seed)
        self.world = World(self.scheduler, _shape(len(replicas)))
        self.judges = Judges(self.world)
        self.workload = Workload(self.world, self.judges.facts)
        stack.enter_context(simulated_threads(self.scheduler))
        stack.callback(self._end)
        for broker in self.world.hosts:
            self.world.start_agent(broker)
        self.judges.begin()
        self.pass_s(2)
        self.create("blue", replicas)

    def _end(self) -> None:
        self.scheduler.after_step = None
        for host in self.world.hosts.values():
            for process in (host.agent_process, host.controller_process):
                if process is not None:
                    process.kill()
        self.workload.end()

    def create(self, name: str, replicas: tuple[BrokerId, ...]) -> None:
        """Have a topic of one partition made, as by hand; it has a leader then."""
        topic = TopicAssignment(name, {0: ReplicaAssignment(replicas)})
        state = znode_paths.partition_state(TopicPartition(name, 0))
        self.world.zookeeper.write_as_admin(znode_paths.topic(name), znodes.encode_topic(topic))
        self.until(lambda: self.world.zookeeper.read(state) is not None)

    def pass_s(self, seconds: float) -> None:
        self.scheduler.run_until(self.scheduler.now_us + int(seconds * SECOND_US))

    def until(self, condition: Callable[[], bool], within_s: float = 30, *, every_us: int = STEP_US) -> None:
        """Let virtual time pass until `condition` holds, which is looked at `every_us`."""
        deadline = self.scheduler.now_us + within_s * SECOND_US
        while not condition():
            assert self.scheduler.now_us < deadline
            self.scheduler.run_until(self.scheduler.now_us + every_us)

    def until_all_is_well(self) -> None:
        """Until the judges find nothing that has not converged."""
        self.until(lambda: self.judges.not_converged() == [], 60, every_us=100_000)

    @property
    def state(self) -> LeaderAndIsr:
        held = self.world.zookeeper.read(STATE)
        return znodes.decode_state(STATE, held.data, zk_version=held.stat.version).leader_and_isr

    def missing(self) -> int:
        """Records of batches that were acknowledged and are not in the log of whoever leads."""
        leader = self.state.leader
        log = self.world.agents[leader].logs.get(BLUE)
        held = dict(LogCursor(leader, log, self.judges._peek).read_to(log.log_end_offset))
        promised = self.judges.facts.of(BLUE).promised
        assert promised
        return sum(not digest.is_same(held.get(offset)) for offset, digest in promised.items())
