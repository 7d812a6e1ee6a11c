"""Drills of what agents forget without having been told to: reconcile must mend it, whoever rules."""

from __future__ import annotations

from regency.broker_agent.replication.api import Role
from regency.model.ids import BrokerId
from simulation.faults.memory_faults import Loss, invent, lose, lose_some, take_away_notifications
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.stage import Deed, Stage
from simulation.world import Host

UNFED_AFTER_US = 15 * SECOND_US // 2
"""When somebody else rules already where who ruled has died: whoever begins to rule tells everybody everything."""


def deeds(stage: Stage) -> dict[Kind, Deed]:
    """The drill of this file."""
    drills = _MemoryDrills(stage)
    return {Kind.DRILL_FORGETTING: drills.forgetting}


class _MemoryDrills:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def forgetting(self, fault: Fault, host: Host) -> None:
        """Replicas of two brokers lose something, now and later, in the end all fetchers; by chance who rules dies."""
        stage = self._stage
        world, chance = stage.world, fault.chance()
        other = world.hosts[BrokerId(fault.other)]
        lose_some(stage, fault, host)
        stage.later(int(chance.random() * 2 * SECOND_US), lambda: lose_some(stage, fault, other))

        def unfeed() -> None:
            replicas = None if other.agent is None or not other.agent.process.alive else other.agent.replicas
            if replicas is None:
                return
            for name, partition in sorted(replicas.partitions.items()):
                if partition.role is Role.FOLLOWER:
                    stage.note(other.name, "%s loses %s", name, Loss.FETCHER.value)
                    lose(replicas, name, Loss.FETCHER)

        stage.later(UNFED_AFTER_US, unfeed)
        stage.later(int(chance.random() * 3 * SECOND_US), lambda: invent(stage, other))
        if chance.random() < 0.5:
            take_away_notifications(stage, 7 * SECOND_US)
        if chance.random() < 0.5:

            def end() -> None:
                ruler = world.ruler()
                if ruler is not None:
                    world.kill_controller(ruler.broker)

            stage.later(int(chance.random() * 4 * SECOND_US), end)
