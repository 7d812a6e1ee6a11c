"""Does the faults of a plan to a world, and undoes each when its time is over."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial

from regency.kafka.groups.placement import OFFSETS_TOPIC
from regency.model import znodes
from regency.model.ids import BrokerId, TopicPartition, ZkVersion
from regency.model.znodes import paths
from simulation.cluster.channels import host_of
from simulation.faults import (
    admin_faults,
    drills_control,
    drills_deletions,
    drills_disks,
    drills_log,
    drills_memory,
    drills_reassignment,
    drills_replication,
    drills_unheard,
    drills_writes,
    election_faults,
    log_faults,
    machine_faults,
    memory_faults,
    network_faults,
    process_faults,
    replication_faults,
    request_faults,
    stranger_faults,
    zookeeper_faults,
)
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.points import Points
from simulation.faults.stage import Deed, Stage, Told, Undo
from simulation.shape import Shape
from simulation.world import Host, World


class Injector:
    """Carries a plan out, until `close`."""

    def __init__(
        self,
        world: World,
        points: Points,
        point_names: Sequence[str],
        liked: Collection[str],
        told: Told,
        happened: Counter[str],
    ) -> None:
        self._world = world
        self._happened = happened
        self._stage = stage = Stage(world, points, told)
        self._deeds: dict[Kind, Deed] = {
            **process_faults.deeds(stage, point_names, liked),
            **replication_faults.deeds(stage),
            **drills_replication.deeds(stage),
            **drills_control.deeds(stage),
            **drills_reassignment.deeds(stage),
            **drills_unheard.deeds(stage),
            **drills_log.deeds(stage),
            **drills_memory.deeds(stage),
            **drills_deletions.deeds(stage),
            **drills_disks.deeds(stage),
            **drills_writes.deeds(stage),
            **network_faults.deeds(stage),
            **zookeeper_faults.deeds(stage),
            **machine_faults.deeds(stage),
            **admin_faults.deeds(stage),
            **request_faults.deeds(stage),
            **election_faults.deeds(stage),
            **memory_faults.deeds(stage),
            **stranger_faults.deeds(stage),
            **log_faults.deeds(stage),
            Kind.COORDINATOR: self._befall_coordinator,
            Kind.KILL_CLIENT: lambda fault, _host: told.kill_client(fault.detail),
        }

    def schedule(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            self._stage.later(fault.at_us - self._world.scheduler.now_us, partial(self._strike, fault))

    def close(self) -> None:
        self._stage.close()

    def _strike(self, fault: Fault) -> None:
        who = host_of(BrokerId(fault.broker))
        self._stage.note(who, "%s", fault)
        self._happened[fault.kind.value] += 1
        undo = self._deeds[fault.kind](fault, self._world.hosts[BrokerId(fault.broker)])
        if undo is not None:

            def over() -> None:
                self._stage.note(who, "over: %s", fault.kind.value)
                undo()

            self._stage.later(fault.for_us, over)

    def _befall_coordinator(self, fault: Fault, host: Host) -> Undo | None:
        """Whoever keeps a partition of groups meets what may befall any broker, or another one is to keep it."""
        chance = fault.chance()
        led = _coordinators(self._world)
        if led:
            host = self._world.hosts[chance.choice(led)]
        kind = chance.choice(COORDINATORS)
        self._stage.note(host.name, "the coordinator: %s", kind.value)
        return self._deeds[kind](fault._replace(kind=kind, broker=host.broker), host)


COORDINATORS = (
    Kind.BOUNCE,
    Kind.KILL_AGENT,
    Kind.STOP_AGENT,
    Kind.PAUSE_AGENT,
    Kind.ISOLATE,
    Kind.ZK_CUT,
    Kind.ZK_EXPIRE,
    Kind.RESET,
    Kind.LOSE_ANSWERS,
    Kind.LATE,
    Kind.SLOW_STEPS,
    Kind.LEAVE_AND_STAY,
    Kind.ELECT_PREFERRED,
    Kind.ELECT_PREFERRED,
)
"""What befalls coordinators of groups."""


def _coordinators(world: World) -> list[BrokerId]:
    """Who leads partitions of the topic of groups, in their order."""
    found: list[BrokerId] = []
    for number in range(world.partitions_of(OFFSETS_TOPIC)):
        path = paths.partition_state(TopicPartition(OFFSETS_TOPIC, number))
        held = world.zookeeper.read(path)
        if held is not None:
            leader = znodes.decode_state(path, held.data, zk_version=ZkVersion(0)).leader_and_isr.leader
            found += [leader] if leader in world.hosts else []
    return found


SHOCKS = 3
"""How many there are, in the deep profile."""

LONGEST_US = 7 * SECOND_US
"""After that everything is healed."""

_KINDS = (
    Kind.KILL_AGENT,
    Kind.KILL_CONTROLLER,
    Kind.BOUNCE,
    Kind.STOP_AGENT,
    Kind.PAUSE_AGENT,
    Kind.PAUSE_RULER,
    Kind.STALL_AT_POINT,
    Kind.CUT_AT_POINT,
    Kind.ISOLATE,
    Kind.ONE_WAY,
    Kind.SPLIT,
    Kind.LATE,
    Kind.LOSE_ANSWERS,
    Kind.RESET,
    Kind.ZK_CUT,
    Kind.ZK_BLINK,
    Kind.ZK_HALF_OPEN,
    Kind.ZK_RESET,
    Kind.ZK_LOST_REPLY,
    Kind.ZK_LOST_REPLY,
    Kind.ZK_LOST_REPLY,
    Kind.ZK_EXPIRE,
    Kind.ZK_SLOW,
    Kind.ZK_OUTAGE,
    Kind.DELETE_CONTROLLER,
)


def aftershocks(shape: Shape, seed: int) -> list[list[Fault]]:
    """The faults of each, their times counted from its beginning."""
    chance = random.Random(f"aftershocks {seed}")
    return [_shock(shape, chance) for _ in range(SHOCKS)] if shape.profile == "deep" else []


def _shock(shape: Shape, chance: random.Random) -> list[Fault]:
    faults = []
    broker, other = chance.sample(range(1, shape.brokers + 1), 2)
    choice = chance.random()
    if choice < 0.35:  # who rules does not hear of a restart, or of what leaders do about it
        at_us = chance.randrange(2 * SECOND_US)
        faults.append(Fault(0, Kind.BOUNCE, broker, other, SECOND_US // 3, chance.random(), lossy=False))
        faults.append(Fault(at_us, Kind.ZK_BLINK, broker, other, 2 * SECOND_US, chance.random(), lossy=False))
    elif choice < 0.6:  # agents are told to host what they cannot read the settings of
        at_us = SECOND_US // 5 + chance.randrange(SECOND_US // 5)
        faults.append(Fault(0, Kind.CREATE_TOPIC, broker, other, 0, chance.random(), lossy=False))
        faults.append(Fault(at_us, Kind.ZK_BLINK_AGENTS, broker, other, 2 * SECOND_US, chance.random(), lossy=False))
    for _ in range(chance.randint(0, 2) if faults else chance.randint(1, 3)):
        at_us = chance.choice((0, chance.randrange(SECOND_US)))
        broker = chance.randint(1, shape.brokers)
        other = chance.choice([each for each in range(1, shape.brokers + 1) if each != broker])
        duration = int(chance.choice((0.3, 1.0, 2.5, 6.0)) * (0.5 + chance.random() / 2) * SECOND_US)
        faults.append(Fault(at_us, chance.choice(_KINDS), broker, other, duration, chance.random(), lossy=False))
    return sorted(faults, key=lambda fault: fault.at_us)
