"""A cluster that nothing happens to is well; whatever is put out of order in it is named as the reason."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from simulation.admin import Admin
from simulation.faults.memory_faults import Loss, lose
from simulation.judging.judges import InvariantBroken, Judges
from simulation.kernel.scheduler import SECOND_US, Scheduler
from simulation.kernel.threads import simulated_threads
from simulation.shape import shape_of
from simulation.workload import Workload
from simulation.world import World

from regency.broker_agent.control.metadata_cache import EMPTY
from regency.broker_agent.replication.followers import NOT_LEADING
from regency.controller.brokers.reconcile import REPORTS_TO_WAIT_FOR
from regency.controller.controller import View
from regency.model.ids import BrokerId, LeaderEpoch, TopicPartition
from regency.model.znodes import paths

TP = TopicPartition("blue", 0)


class Well:
    """A world whose producers have stopped."""

    def __init__(self, scheduler: Scheduler, *, reconciles: bool = True) -> None:
        shape = shape_of("quick", 1) if reconciles else shape_of("quick", 1).unreconciled()
        self.scheduler = scheduler
        self.world = World(scheduler, shape)
        self.judges = Judges(self.world)
        self.workload = Workload(self.world, self.judges.facts)
        for broker in self.world.hosts:
            self.world.start_agent(broker)
        Admin(self.world, shape.topics, self.workload.start)
        self.judges.begin()
        self.run(6)
        self.workload.stop()
        self.run(6)

    def run(self, seconds: int) -> None:
        self.scheduler.run_until(self.scheduler.now_us + seconds * SECOND_US)

    def ruling(self) -> int:
        return next(broker for broker, sim in self.world.controllers.items() if self.controller(broker).view.ruling)

    def controller(self, broker: int) -> Any:
        return self.world.controllers[BrokerId(broker)].controller

    def leader(self) -> Any:
        return next(self.partition(broker) for broker in self.world.agents if self.partition(broker).is_leader)

    def follower(self) -> Any:
        return next(each for broker, each in self.world.agents.items() if not self.partition(broker).is_leader)

    def partition(self, broker: int) -> Any:
        replicas = self.world.agents[BrokerId(broker)].replicas
        assert replicas is not None
        return replicas.partitions[TP]

    def end(self) -> None:
        self.scheduler.after_step = None
        for host in self.world.hosts.values():
            for process in (host.agent_process, host.controller_process):
                if process is not None:
                    process.kill()
        self.workload.end()


@pytest.fixture
def well(request: pytest.FixtureRequest) -> Iterator[Well]:
    scheduler = Scheduler(1)
    logging.disable(logging.CRITICAL)
    gc.disable()
    with simulated_threads(scheduler):
        made = Well(scheduler, reconciles=getattr(request, "param", True))
        try:
            assert made.judges.not_converged() == []
            assert made.workload.records > 0
            yield made
        finally:
            made.end()
            gc.enable()
            logging.disable(logging.NOTSET)


def kill_broker(well: Well) -> None:
    well.world.kill_agent(BrokerId(3))


def kill_ruling(well: Well) -> None:
    well.world.kill_controller(BrokerId(well.ruling()))


def rule_twice(well: Well) -> None:
    other = next(broker for broker in well.world.controllers if broker != well.ruling())
    well.controller(other).view = View(ruling=True)


def send_without_ruling(well: Well) -> None:
    other = next(broker for broker in well.world.controllers if broker != well.ruling())
    well.scheduler.spawn(
        well.world.controllers[other].process, "sender to broker 1", lambda: well.scheduler.sleep_us(SECOND_US)
    )


def leave_notification(well: Well) -> None:
    well.world.zookeeper.write_as_admin(f"{paths.ISR_CHANGE_NOTIFICATION}/isr_change_0000000099", b"{}")


def forget_broker(well: Well) -> None:
    well.controller(well.ruling())._term.context.remove_broker(BrokerId(2))


def mistake_leadership(well: Well) -> None:
    context = well.controller(well.ruling())._term.context
    held = context.leadership(TP)
    decided = msgspec.structs.replace(held.leader_and_isr, leader_epoch=LeaderEpoch(9))
    context.set_leadership(TP, msgspec.structs.replace(held, leader_and_isr=decided))


def give_up(well: Well) -> None:
    well.follower().replicas.fetchers.failed[TP] = "it cannot be read"


def stop_following(well: Well) -> None:
    well.follower().replicas.fetchers.remove([TP])


def follow_in_the_past(well: Well) -> None:
    well.partition(well.follower().broker_id).leader_epoch = LeaderEpoch(-1)


def forget_isr(well: Well) -> None:
    well.leader().isr = NOT_LEADING


def lower_watermark(well: Well) -> None:
    log = well.partition(well.follower().broker_id).log
    log.set_high_watermark(log.high_watermark - 1)


def damage_log(well: Well) -> None:
    agent = well.follower()
    path = agent.logs.get(TP).directory / "00000000000000000000.log"
    file = well.world.hosts[agent.broker_id].disk.tree.file(str(path))
    file.write(bytes([file.content[17] ^ 1]), 17)


def never_leave(well: Well) -> None:
    well.world.agents[BrokerId(1)].leaving = True


def lose_directory(well: Well) -> None:
    for directory in well.world.agents[BrokerId(1)].logs._directories:
        directory.failure = "it failed"


def know_nothing(well: Well) -> None:
    well.world.agents[BrokerId(1)].metadata._view = EMPTY


def shrink_isr(well: Well) -> None:
    node = well.world.zookeeper.model.tree.nodes[paths.partition_state(TP)]
    node.data = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'


REASONS: list[tuple[Callable[[Well], None], str]] = [
    (kill_broker, "broker 3 is dead and still registered"),
    (kill_ruling, "0 controllers rule"),
    (rule_twice, "2 controllers rule"),
    (send_without_ruling, "send, it has channels to 0 brokers"),
    (leave_notification, "/isr_change_notification still holds isr_change_0000000099"),
    (forget_broker, "the controller knows brokers 1 as"),
    (mistake_leadership, "the controller knows the leader"),
    (give_up, "has given blue-0 up: it cannot be read"),
    (stop_following, "no fetcher of broker"),
    (follow_in_the_past, "in leader epoch -1, ZooKeeper has leader"),
    (forget_isr, "of blue-0 has Committed(committed=(), zk_version=-1)"),
    (lower_watermark, "high watermarks and ends of blue-0 differ"),
    (never_leave, "broker 1 is leaving"),
    (lose_directory, "broker 1 makes no use of /logs-1"),
    (know_nothing, "broker 1 knows brokers , registered are 1 as"),
    (shrink_isr, "blue-0 has not all of [1, 2, 3] in sync"),
]


@pytest.mark.parametrize(("put", "reason"), REASONS)
def test_what_is_not_well_is_named(well: Well, put: Callable[[Well], None], reason: str) -> None:
    put(well)
    reasons = well.judges.not_converged()
    assert any(reason in each for each in reasons), reasons


def test_a_damaged_batch_is_not_even_compared(well: Well) -> None:
    damage_log(well)
    with pytest.raises(InvariantBroken, match="batches-sound"):
        well.judges.not_converged()


@pytest.mark.parametrize("loss", list(Loss))
def test_a_replica_that_lost_something_is_found_and_repaired_within_the_interval(well: Well, loss: Loss) -> None:
    agent = well.follower()
    name = well.partition(agent.broker_id).topic_partition
    lose(agent.replicas, name, loss)
    assert well.judges.not_converged() != []
    settings = well.controller(well.ruling())._settings
    confirm_ms = REPORTS_TO_WAIT_FOR * settings.regency_report_interval_ms
    well.run((settings.regency_reconcile_interval_ms + confirm_ms) // 1000 + 3)
    assert well.judges.not_converged() == []
    assert well.controller(well.ruling()).counters.repairs == {"told again": 1}


@pytest.mark.parametrize("well", [False], indirect=True)
def test_where_nobody_reconciles_what_was_lost_stays_lost(well: Well) -> None:
    agent = well.follower()
    lose(agent.replicas, TP, Loss.FETCHER)
    well.run(30)
    assert any("no fetcher of broker" in each for each in well.judges.not_converged())
    assert not well.controller(well.ruling()).counters.repairs
