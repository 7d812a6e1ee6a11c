"""Drills of what a broker cannot do at once with its logs."""

from __future__ import annotations

from contextlib import ExitStack

from regency.broker_agent.log.directories.log_manager import LogManager
from regency.model import znodes
from regency.model.ids import BrokerId
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb
from simulation.faults import admin_faults, machine_faults
from simulation.faults.network_faults import lose_first
from simulation.faults.plan import Fault, Kind
from simulation.faults.scripts import Led, Script, Scripts
from simulation.faults.stage import Deed, Stage
from simulation.kernel.scheduler import Process
from simulation.shape import MARKS_MS, directories_of

SYNC_OF_CUTS = "log.settling.before_names"
EVERY_BROKER = f"{paths.CONFIG_BROKERS}/<default>"


def deeds(stage: Stage) -> dict[Kind, Deed]:
    """The faults of this file."""
    drills = _Drills(stage)
    return {Kind.DRILL_DISKS: drills.of(drills.disks)}


class _Drills(Scripts):
    def disks(self, fault: Fault, undone: ExitStack) -> Script:
        """One after the other by turns."""
        order = (self.offline_directory, self.no_descriptor_for_a_cut, self.setting_of_all)
        script = order[(self._done - 1) % len(order)]
        self._stage.note("drill", "%s", script.__name__.replace("_", " "))
        yield from script(fault, undone)

    def offline_directory(self, fault: Fault, undone: ExitStack) -> Script:
        """A partition is added while one of a broker's two log directories is offline, twice.

        What that broker is told of it the first time is lost, and told again when nobody answers.
        """
        hosts = self._world.hosts.values()
        broken = fault.chance().choice(
            [each for each in hosts if len(directories_of(self._world.shape, each.broker)) > 1]
        )
        undo = machine_faults.deeds(self._stage)[Kind.DIRECTORY_FAILS](fault._replace(detail=0.0), broken)
        assert undo is not None
        undone.callback(undo)
        add = admin_faults.deeds(self._stage)[Kind.ADD_PARTITION]
        yield 1.9
        lose_first(self._world.network, broken, pb.LeaderAndIsrRequest)
        for after_s in (2, 4):
            yield 0.1
            add(fault._replace(detail=fault.detail / after_s), broken)
            yield 1.9
        yield 2.0  # what was lost is told again

    def no_descriptor_for_a_cut(self, fault: Fault, undone: ExitStack) -> Script:
        """Who is deposed cuts off a tail that nobody has, and gets no descriptor to have that on the disk."""

        def written_to() -> list[Led]:
            return [led for led in self._full() if self._end(led.state.leader, led.partition) > 0]

        yield lambda: bool(written_to())
        led = fault.chance().choice(written_to())
        partition, old = led.partition, led.state.leader
        deaf = undone.enter_context(ExitStack())
        for follower in led.followers:
            deaf.enter_context(self._apart(follower, old))
        yield lambda: self._end(old, partition) > max(self._end(each, partition) for each in led.followers)
        starved = undone.enter_context(ExitStack())
        begun: list[bool] = []

        def starve(process: Process) -> None:
            if not self._syncs_cuts(old):
                self._stage.points.arm([process.name], [SYNC_OF_CUTS], starve)
                return
            begun.append(True)
            disk = self._world.hosts[old].disk
            starved.callback(
                self._stage.lasts(("no descriptors", old), 0, lambda values: disk.starve(min(values, default=None)))
            )

        self._stage.points.arm([f"agent-{old}"], [SYNC_OF_CUTS], starve)
        self._expire(old)
        yield lambda: bool(begun)
        yield 0.02
        starved.close()
        deaf.close()
        yield 1.5 * MARKS_MS / 1000

    def _syncs_cuts(self, broker: BrokerId) -> bool:
        """Whether a broker has it put on the disk where a log was cut off."""
        logs: LogManager | None = self._world.agents[broker].logs
        return logs is not None and any(log.unsettled.tail for log in logs._logs.values())

    def setting_of_all(self, fault: Fault, undone: ExitStack) -> Script:
        """A setting of all brokers changes, and with it those of all topics."""
        del undone
        zookeeper = self._world.zookeeper
        before = zookeeper.read(EVERY_BROKER)
        data = znodes.encode_config(
            {"log.segment.bytes": str(100_000 + fault.at_us % 1_000)}, previous=None if before is None else before.data
        )
        zookeeper.write_as_admin(EVERY_BROKER, data)
        change = znodes.encode_config_change(EVERY_BROKER.removeprefix("/config/"))
        zookeeper.write_as_admin(paths.config_change_prefix(), change, new=True)
        yield 0.5
