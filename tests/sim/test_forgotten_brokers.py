"""A broker that is said to be gone for good, while controllers die and it returns all the same, at any moment."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from simulation.faults.request_faults import Client
from simulation.judging.judges import Judges
from simulation.judging.log_digests import LogCursor
from simulation.kernel.scheduler import Scheduler
from simulation.kernel.threads import simulated_threads
from simulation.shape import SECOND_US, Shape, Storage, TopicShape
from simulation.workload import Workload
from simulation.world import World

from regency.controller.broker_forgetting import ForgetBroker
from regency.model import znode_paths as paths
from regency.model import znodes
from regency.model.facts import ReplicaAssignment, TopicAssignment
from regency.model.ids import BrokerId, TopicPartition

BLUE = TopicPartition("blue", 0)
FIRST, SECOND, GONE = BrokerId(1), BrokerId(2), BrokerId(3)
SHAPE = Shape("scripted", 3, (TopicShape("blue", 1, 2, 1),), 0, 0.0, 0.0, 30.0, 0.0, 0, ("plain",), 1.0, 0, Storage())
SEEDS = range(1, 8)
ASKING_US = 40_000
"""About as long as it takes until a request is answered."""
STARTING_US = 500_000
"""About as long as it takes until a broker is registered."""


class Script:
    """Brokers 1 to 3; blue-0 on 3 and 1 moves to 1 and 2 while broker 3 is dead, and clients write to it."""

    def __init__(self, stack: ExitStack, seed: int) -> None:
        self.scheduler = Scheduler(seed)
        self.world = World(self.scheduler, SHAPE)
        self.judges = Judges(self.world)
        self.workload = Workload(self.world, self.judges.facts)
        self.answers: list[str] = []
        stack.enter_context(simulated_threads(self.scheduler))
        stack.callback(self._end)
        for broker in self.world.hosts:
            self.world.start_agent(broker)
        self.judges.begin()
        self.pass_s(2)
        topic = TopicAssignment("blue", {0: ReplicaAssignment((GONE, FIRST))})
        self.world.zookeeper.write_as_admin(paths.topic("blue"), znodes.encode_topic(topic))
        self.until(lambda: self.world.zookeeper.read(paths.partition_state(BLUE)) is not None)
        self.workload.start()
        self.pass_s(2)
        self.world.kill_agent(GONE)
        self.move(FIRST, SECOND)
        self.until(lambda: self.assigned == ReplicaAssignment((FIRST, SECOND), deleting=(GONE,)))

    def _end(self) -> None:
        self.scheduler.after_step = None
        for host in self.world.hosts.values():
            for process in (host.agent_process, host.controller_process):
                if process is not None:
                    process.kill()
        self.workload.end()

    def pass_s(self, seconds: float) -> None:
        self.scheduler.run_until(self.scheduler.now_us + int(seconds * SECOND_US))

    def until(self, condition: Callable[[], bool], within_s: float = 60) -> None:
        deadline = self.scheduler.now_us + within_s * SECOND_US
        while not condition():
            assert self.scheduler.now_us < deadline
            self.scheduler.run_until(self.scheduler.now_us + 5_000)

    def move(self, *replicas: BrokerId) -> None:
        self.world.zookeeper.write_as_admin(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves([(BLUE, replicas)]))

    def forget(self) -> None:
        """Somebody says that the broker is gone for good, until somebody answers."""

        def told(answer: object) -> str:
            self.answers.append(answer.error.name)
            return self.answers[-1]

        Client(self.world, lambda: ForgetBroker(GONE), told, tries=200)

    @property
    def assigned(self) -> ReplicaAssignment:
        held = self.world.zookeeper.read(paths.topic("blue"))
        return znodes.decode_topic("/", held.data, topic="blue", zk_version=0, czxid=0).partitions[0]

    @property
    def remembers(self) -> bool:
        """Whether the cluster knows of the broker."""
        return self.world.zookeeper.read(paths.incarnation(GONE)) is not None

    def lost(self) -> int:
        """Records that were acknowledged and are not in the log of whoever leads."""
        state = self.world.zookeeper.read(paths.partition_state(BLUE))
        leader = znodes.decode_state("/", state.data, zk_version=0).leader_and_isr.leader
        log = self.world.agents[leader].logs.get(BLUE)
        held = dict(LogCursor(leader, log, self.judges._peek).read_to(log.log_end_offset))
        promised = self.judges.facts.of(BLUE).promised
        assert promised
        return sum(not digest.is_same(held.get(offset)) for offset, digest in promised.items())


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_whoever_dies_and_whenever_it_returns_nobody_waits_and_nothing_is_lost(seed: int, returns: bool) -> None:
    chance = random.Random(seed)
    with ExitStack() as stack:
        script = Script(stack, seed)
        world, scheduler = script.world, script.scheduler
        if returns:
            scheduler.at(chance.randrange(2 * STARTING_US), lambda: world.start_agent(GONE))
        scheduler.at(STARTING_US, script.forget)
        dies_us = STARTING_US + chance.randrange(ASKING_US)
        scheduler.at(dies_us, lambda: world.kill_controller(world.ruler().broker))

        script.until(lambda: script.assigned == ReplicaAssignment((FIRST, SECOND)))

        script.until(lambda: bool(script.answers))
        assert script.answers[0] in ("NONE", "BROKER_ID_NOT_REGISTERED", *(("INVALID_REQUEST",) if returns else ()))
        assert returns or not script.remembers
        world.heal()
        script.until(lambda: script.judges.not_converged() == [])
        assert script.remembers
        script.move(GONE, SECOND)
        script.until(lambda: script.assigned == ReplicaAssignment((GONE, SECOND)))
        script.workload.stop()
        script.until(lambda: script.judges.not_converged() == [])
        assert script.lost() == 0
