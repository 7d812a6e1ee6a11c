"""What happens to processes: they die, stop, are paused, and start again, at any moment or at a crash point."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

from regency.model.ids import BrokerId
from regency.model.znodes import paths as znode_paths
from simulation.faults import network_faults, zookeeper_faults
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.points import choose, is_of_agent, is_of_controller, may_stand_still
from simulation.faults.stage import Deed, Stage, Undo
from simulation.kernel.scheduler import Process
from simulation.world import SESSION_MS, Host

MOST_DISK_OPERATIONS = 60
"""Of an agent that is to die at one of them."""

Struck = Callable[[Process], Undo]
"""Does something to a process at a crash point; undone when the fault is over."""


def deeds(stage: Stage, points: Sequence[str], liked: Collection[str]) -> dict[Kind, Deed]:
    """The faults of this file. `points` are all crash points there are, sorted; `liked` some to be struck at first."""
    faults = _ProcessFaults(stage)
    at_points = _AtPoints(stage, points, liked, faults)
    return {
        Kind.KILL_AGENT: faults.kill_agent,
        Kind.KILL_CONTROLLER: faults.kill_controller,
        Kind.BOUNCE: faults.bounce,
        Kind.STOP_AGENT: faults.stop_agent,
        Kind.RESTART_ALL: faults.restart_all,
        Kind.ROLLING_RESTART: faults.rolling_restart,
        Kind.PAUSE_AGENT: lambda _fault, host: stage.pause([host.agent_process]),
        Kind.PAUSE_CONTROLLER: lambda _fault, host: stage.pause([host.controller_process]),
        Kind.PAUSE_HOST: lambda _fault, host: stage.pause([host.agent_process, host.controller_process]),
        Kind.PAUSE_RULER: faults.pause_ruler,
        Kind.PAUSE_LEADER: faults.pause_leader,
        Kind.LOOP_STANDS: faults.loop_stands,
        Kind.SLOW_STEPS: faults.slow_steps,
        Kind.CRASH_AT_DISK: faults.crash_at_disk,
        Kind.LAST_IN_SYNC: faults.last_in_sync,
        Kind.CRASH_AT_POINT: at_points.crash,
        Kind.PAUSE_AT_POINT: at_points.pause,
        Kind.CUT_AT_POINT: at_points.cut,
        Kind.STALL_AT_POINT: at_points.stall,
        Kind.CLEANING: at_points.crash_at_cleaning,
    }


class _ProcessFaults:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world

    # Ends

    def kill_agent(self, fault: Fault, host: Host) -> Undo:
        self._stage.die(host, lossy=fault.lossy)
        return self._stage.keep_down(host)

    def kill_controller(self, fault: Fault, host: Host) -> None:
        """SIGKILL of the child only, which its agent starts again."""
        del fault
        self._world.kill_controller(host.broker)

    def bounce(self, fault: Fault, host: Host) -> None:
        """Dead, and back before anybody has missed it; by chance again and again."""
        chance = fault.chance()
        at_us = 0
        for number in range(chance.randint(1, 3)):
            self._stage.later(
                at_us, partial(self._die_for_a_moment, host, fault.lossy and number == 0, chance.random())
            )
            at_us += int((0.2 + 2 * chance.random()) * SECOND_US)

    def _die_for_a_moment(self, host: Host, lossy: bool, moment: float) -> None:
        self._stage.die(host, lossy=lossy)
        self._stage.later(int(moment * 0.5 * SECOND_US), self._stage.keep_down(host))

    def stop_agent(self, fault: Fault, host: Host) -> Undo:
        """SIGTERM, and back some time after it is gone."""
        del fault
        undo = self._stage.keep_down(host)
        self._world.stop_agent(host.broker, lambda: None)
        return undo

    def restart_all(self, fault: Fault, host: Host) -> None:
        """Every agent dies at once; they come back one by one."""
        del host
        chance = fault.chance()
        for each in self._world.hosts.values():
            self._stage.die(each, lossy=False)
            self._stage.later(int(chance.random() * fault.for_us), self._stage.keep_down(each))

    def rolling_restart(self, fault: Fault, host: Host) -> None:
        """One agent after another is stopped in order, or killed, and started again."""
        del host
        chance = fault.chance()
        hosts = list(self._world.hosts.values())
        pause_us = int((0.5 + chance.random()) * SECOND_US)
        for place, each in enumerate(chance.sample(hosts, len(hosts))):
            act = self.stop_for_a_while if chance.random() < 0.7 else self._die_for_a_moment_cleanly
            self._stage.later(place * pause_us, partial(act, each))

    def stop_for_a_while(self, host: Host) -> None:
        """SIGTERM, and back as soon as it is gone."""
        self._world.stop_agent(host.broker, lambda: self._stage.start_again(host, SECOND_US // 4))

    def _die_for_a_moment_cleanly(self, host: Host) -> None:
        self._die_for_a_moment(host, False, 0.5)

    def last_in_sync(self, fault: Fault, host: Host) -> None:
        """A leader is cut off from its followers until they are out of sync; then it dies, and they hear each other."""
        stage, chance = self._stage, fault.chance()
        leader = chance.choice(self._leading() or [host])
        others = [each.name for each in self._world.hosts.values() if each is not leader]
        alone_us = int((5 + 7 * chance.random()) * SECOND_US)
        stage.later(alone_us + SECOND_US // 2, network_faults.isolate(stage, leader.name, others))

        def die() -> None:
            stage.die(leader, lossy=fault.lossy)
            stage.later(int((0.5 + 5 * chance.random()) * SECOND_US), stage.keep_down(leader))

        stage.later(alone_us, die)

    def crash_at_disk(self, fault: Fault, host: Host) -> Undo:
        """The agent dies when it has begun so many operations on its disk."""
        stage = self._stage
        left = int(fault.detail * MOST_DISK_OPERATIONS)
        undo: Undo | None = None

        def count(_name: str, _path: str) -> None:
            nonlocal left, undo
            process = host.agent_process
            if undo is not None or process is None or not process.alive:
                return
            left -= 1
            if left <= 0:
                undo = stage.keep_down(host)
                host.disk.on_operation(None)
                stage.note(host.name, "dies at a disk operation")
                stage.die(host, lossy=fault.lossy)
                process.check_alive()

        host.disk.on_operation(count)

        def over() -> None:
            if undo is not None:
                undo()
            else:
                host.disk.on_operation(None)

        return over

    # Pauses

    def pause_ruler(self, fault: Fault, host: Host) -> Undo:
        """Whoever rules now stops for longer than its session lives, and then goes on as if nothing had been."""
        return self._pause_long(fault, [(self._world.ruler() or host).controller_process])

    def pause_leader(self, fault: Fault, host: Host) -> Undo:
        return self._pause_long(fault, [fault.chance().choice(self._leading() or [host]).agent_process])

    def loop_stands(self, fault: Fault, host: Host) -> Undo | None:
        """A data loop, by chance of a leader, stands still for a while, or for ever; the rest of its agent does not."""
        stage = self._stage
        agent = (host if fault.detail < 0.3 else fault.chance().choice(self._leading() or [host])).agent
        if agent is None or not agent.process.alive or not agent.is_guarded or agent.leaving:
            return None
        process = agent.process

        def apply(values: Sequence[Any]) -> None:
            if not values:
                process.go_on()
            elif not process.loop_stands:
                stage.world.stand_still(agent)

        undo = stage.lasts(("loop", process), True, apply)
        stage.note(process.name, "its data loop stands still")
        return undo if fault.detail % 0.1 < 0.06 else lambda: None

    def slow_steps(self, fault: Fault, host: Host) -> Undo | None:
        """An agent, or who rules, gets little of a processor: each step takes up to a millisecond, or up to 0.3 s."""
        chance = fault.chance()
        of_agent = chance.random() < 0.5
        process = host.agent_process if of_agent else (self._world.ruler() or host).controller_process
        if process is None or not process.alive:
            return None
        most_us = int(10 ** chance.uniform(3, 5.5))
        self._stage.note(process.name, "a step takes it up to %d us", most_us)

        def apply(values: Sequence[int]) -> None:
            if values:
                most = max(values)
                process.slow_down(lambda: int(most * chance.random() ** 3))
            else:
                process.speed_up()

        return self._stage.lasts(("slow steps", process), most_us, apply)

    def _leading(self) -> list[Host]:
        return [
            each
            for each in self._world.hosts.values()
            if each.agent is not None
            and each.agent.process.alive
            and each.agent.replicas is not None
            and any(partition.is_leader for partition in each.agent.replicas.partitions.values())
        ]

    def _pause_long(self, fault: Fault, processes: Sequence[Process | None]) -> Undo:
        undo = self._stage.pause(processes)
        least_us = SESSION_MS * 1_000 + fault.for_us // 4
        self._stage.later(least_us, undo)
        return lambda: None


CLEANING: Final = ("log.cleaning.", "log.compaction.", "log.cleaner_offsets.")
"""Where a log is compacted: the cleaner, the swap, the checkpoint."""


class _AtPoints:
    """Faults at crash points: a process is struck when it next passes one of some, which may take a while."""

    def __init__(self, stage: Stage, points: Sequence[str], liked: Collection[str], faults: _ProcessFaults) -> None:
        self._stage = stage
        self._liked = liked
        self._faults = faults
        self._of_agents = [name for name in points if is_of_agent(name)]
        self._of_controllers = [name for name in points if is_of_controller(name)]

    def crash_at_cleaning(self, fault: Fault, host: Host) -> None:
        """The next agent ends that is at a certain place of a compaction; by chance once more in its recovery."""
        stage, chance = self._stage, fault.chance()
        names = [name for name in self._of_agents if name.startswith(CLEANING)]
        recovery = [name for name in self._of_agents if name.startswith("log.recovery.before_swap")]
        agents = [f"agent-{broker}" for broker in stage.world.hosts]
        again = chance.random() < 0.4

        def strike(process: Process) -> None:
            own = self._host_of(process)
            stage.die(own, lossy=fault.lossy)
            stage.later(fault.for_us, stage.keep_down(own))
            if again:
                stage.points.arm([process.name], [chance.choice(recovery)], die_again)

        def die_again(process: Process) -> None:
            own = self._host_of(process)
            stage.die(own, lossy=False)
            stage.later(SECOND_US // 2, stage.keep_down(own))

        stage.points.arm(agents, [chance.choice(names)], strike)
        del host

    def crash(self, fault: Fault, host: Host) -> None:
        stage = self._stage

        def strike(process: Process) -> Undo:
            if process.name.startswith("controller"):
                process.kill()
                return lambda: None
            own = self._host_of(process)
            stage.die(own, lossy=fault.lossy)
            return stage.keep_down(own)

        self._wait(fault, host, strike)

    def pause(self, fault: Fault, host: Host) -> None:
        self._wait(fault, host, lambda process: self._stage.pause([process]))

    def stall(self, fault: Fault, host: Host) -> None:
        """The thread that is there stands still, while the others of its process go on: so may a session end."""
        world = self._stage.world

        def strike(process: Process) -> Undo:
            if world.scheduler.current is not None:
                if fault.detail < 0.6 and process.name in world.zk_links:
                    world.zk_links[process.name].expire()
                world.scheduler.sleep_us(max(fault.for_us, SECOND_US))
            return lambda: None

        self._wait(fault, host, strike, only=may_stand_still)

    def cut(self, fault: Fault, host: Host) -> None:
        def strike(process: Process) -> Undo:
            return zookeeper_faults.afflict(self._stage, [process.name], zookeeper_faults.CUT)

        self._wait(fault, host, strike)

    def _host_of(self, process: Process) -> Host:
        return self._stage.world.hosts[BrokerId(int(process.name.rpartition("-")[2]))]

    def _wait(
        self, fault: Fault, host: Host, strike: Struck, *, only: Callable[[str], bool] = lambda _point: True
    ) -> None:
        """For a process of the host or, as only one controller rules, of any."""
        stage, chance = self._stage, fault.chance()
        of_controllers = not fault.lossy and chance.random() < 0.35
        part = "controller" if of_controllers else "agent"
        candidates = [name for name in (self._of_controllers if of_controllers else self._of_agents) if only(name)]
        if fault.lossy:  # what is not synced matters most where files change
            parts = chance.choice((("log.",), ("log.roll.before_flush", "log.background_flush.before_data")))
            candidates = [name for name in candidates if name.startswith(parts)]
        names = choose(candidates, self._liked, stage.points.passed, chance)
        anywhere = of_controllers or chance.random() < 0.5
        brokers = list(stage.world.hosts) if anywhere else [host.broker]

        def struck(process: Process) -> None:
            stage.later(max(fault.for_us, SECOND_US // 4), strike(process))

        stage.note(f"{part}s", "one of %s will be struck at the first of %d points", brokers, len(names))
        stage.points.arm([f"{part}-{broker}" for broker in brokers], names, struck)
        if chance.random() < 0.6:
            self._nudge(fault, host, of_controllers, chance)

    def _nudge(self, fault: Fault, host: Host, of_controllers: bool, chance: random.Random) -> None:
        """Let something happen, so that points are passed that are not passed where all is well."""
        faults, zookeeper = self._faults, self._stage.world.zookeeper
        nudges: list[Callable[[], object]] = [
            partial(faults.bounce, fault._replace(lossy=False), host),
            partial(faults.stop_for_a_while, host),
            partial(zookeeper.delete_as_admin, znode_paths.CONTROLLER),
        ]
        if of_controllers:
            nudges += nudges[2:] * 3
        chance.choice(nudges)()
