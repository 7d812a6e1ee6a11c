"""What goes wrong with a machine's disk and clocks."""

from __future__ import annotations

from collections.abc import Sequence

from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.stage import Deed, Stage, Undo
from simulation.kernel.clock import TRUE_RATE_PPM
from simulation.shape import directories_of
from simulation.world import Host


def deeds(stage: Stage) -> dict[Kind, Deed]:
    faults = _MachineFaults(stage)
    return {
        Kind.DISK_FULL: faults.full,
        Kind.DISK_FAILS: faults.fails,
        Kind.DIRECTORY_FAILS: faults.directory_fails,
        Kind.DISK_SHORT: faults.short_writes,
        Kind.DISK_SLOW: faults.slow,
        Kind.NO_DESCRIPTORS: faults.no_descriptors,
        Kind.CLOCK_DRIFT: faults.drift,
        Kind.CLOCK_STEP: faults.step,
    }


class _MachineFaults:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    # Disks

    def full(self, fault: Fault, host: Host) -> Undo:
        """There is room for a little, and then for nothing."""

        def apply(values: Sequence[int]) -> None:
            host.disk.fill(min(values) if values else None)

        return self._mended(host, self._stage.lasts(("full", host.broker), int(fault.detail * 4_000), apply))

    def fails(self, fault: Fault, host: Host) -> Undo:
        return self._mended(host, self._fail(fault, host, "/"))

    def directory_fails(self, fault: Fault, host: Host) -> Undo:
        """One log directory fails, which may be the only one."""
        directories = directories_of(self._stage.world.shape, host.broker)
        return self._mended(host, self._fail(fault, host, fault.chance().choice(directories)))

    def _fail(self, fault: Fault, host: Host, below: str) -> Undo:
        def apply(values: Sequence[int]) -> None:
            if values:
                host.disk.fail(after=min(values), below=below)
            else:
                host.disk.mend(below)

        return self._stage.lasts(("fails", host.broker, below), int(fault.detail * 40), apply)

    def _mended(self, host: Host, undo: Undo) -> Undo:
        """Whoever repairs a disk starts the agent again, if the failure has ended it or taken a directory from it."""

        def over() -> None:
            undo()
            agent = host.agent
            if agent is not None and agent.process.alive and agent.logs is not None and agent.logs.offline_dirs:
                self._stage.note(agent.process.name, "is restarted: a log directory of it is offline")
                agent.process.kill()
            up_again = self._stage.keep_down(host)
            up_again()

        return over

    def short_writes(self, fault: Fault, host: Host) -> Undo:
        def apply(values: Sequence[float]) -> None:
            host.disk.write_short(max(values, default=0.0))

        return self._stage.lasts(("short", host.broker), 0.05 + fault.detail * 0.5, apply)

    def slow(self, fault: Fault, host: Host) -> Undo:
        def apply(values: Sequence[int]) -> None:
            host.disk.slow(max(values, default=0))

        return self._stage.lasts(("slow", host.broker), int(fault.detail * SECOND_US), apply)

    def no_descriptors(self, fault: Fault, host: Host) -> Undo:
        """Soon the agent gets no descriptor for a file. It is not restarted for that, but where it could not start."""

        def apply(values: Sequence[int]) -> None:
            host.disk.starve(min(values, default=None))

        undo = self._stage.lasts(("no descriptors", host.broker), int(fault.detail * 20), apply)

        def over() -> None:
            undo()
            up_again = self._stage.keep_down(host)
            up_again()

        return over

    # Clocks

    def drift(self, fault: Fault, host: Host) -> Undo:
        """The machine's clocks run fast or slow, also those that sessions and timeouts go by, whatever starts again."""
        rate = TRUE_RATE_PPM + int((fault.detail - 0.5) * 400_000)

        def apply(rates: Sequence[int]) -> None:
            host.clock.drift(rates[-1] if rates else TRUE_RATE_PPM)

        return self._stage.lasts(("drift", host.broker), rate, apply)

    def step(self, fault: Fault, host: Host) -> None:
        """Somebody sets the wall clock, and by chance sets it right after a while."""
        host.clock.step(int((fault.detail - 0.5) * 7_200_000))
        if fault.chance().random() < 0.4:
            self._stage.later(max(fault.for_us, 4 * SECOND_US), host.clock.set_right)
