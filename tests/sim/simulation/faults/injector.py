"""Does the faults of a plan to a world, and undoes each when its time is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial

from regency.model.ids import BrokerId
from simulation.cluster.addresses import host_of
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
    machine_faults,
    memory_faults,
    network_faults,
    process_faults,
    replication_faults,
    request_faults,
    stranger_faults,
    zookeeper_faults,
)
from simulation.faults.plan import Fault, Kind
from simulation.faults.points import Points
from simulation.faults.stage import Deed, Stage, Told
from simulation.world import World


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
