"""Does the faults of a plan to a world, and undoes each when its time is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from regency.model import znode_paths
from regency.model.ids import BrokerId
from simulation.cluster.addresses import CLIENTS, host_of
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.points import Points
from simulation.kernel.scheduler import Process
from simulation.world import Host, World
from simulation.zookeeper.link import ZkLink

CONTROLLER_PARTS = ("controller", "sender", "fenced")
"""First words of crash points in controller processes; all others are in agents."""

Undo = Callable[[], None]


class Injector:
    """Carries a plan out. `on_lossy_crash` is told of every crash that loses what was not synced."""

    def __init__(
        self,
        world: World,
        points: Points,
        point_names: Sequence[str],
        kill_client: Callable[[float], None],
        on_lossy_crash: Callable[[BrokerId], None],
    ) -> None:
        self._world = world
        self._points = points
        self._point_names = point_names
        self._kill_client = kill_client
        self._on_lossy_crash = on_lossy_crash
        self._deeds: dict[Kind, Callable[[Fault, Host], Undo | None]] = {
            Kind.KILL_AGENT: self._kill_agent,
            Kind.KILL_CONTROLLER: self._kill_controller,
            Kind.PAUSE_AGENT: lambda fault, host: self._pause([host.agent_process]),
            Kind.PAUSE_CONTROLLER: lambda fault, host: self._pause([host.controller_process]),
            Kind.PAUSE_HOST: lambda fault, host: self._pause([host.agent_process, host.controller_process]),
            Kind.STOP_AGENT: self._stop_agent,
            Kind.CRASH_AT_POINT: lambda fault, host: self._strike_at_point(fault, host, pause=False),
            Kind.PAUSE_AT_POINT: lambda fault, host: self._strike_at_point(fault, host, pause=True),
            Kind.CRASH_AT_DISK: self._crash_at_disk,
            Kind.ISOLATE: self._isolate,
            Kind.ONE_WAY: self._one_way,
            Kind.SPLIT: self._split,
            Kind.LOSS: self._loss,
            Kind.DELAY: self._delay,
            Kind.LOSE_ANSWERS: self._lose_answers,
            Kind.RESET: self._reset,
            Kind.ZK_CUT: self._zk_cut,
            Kind.ZK_LOST_REPLY: self._zk_lost_reply,
            Kind.ZK_EXPIRE: self._zk_expire,
            Kind.ZK_SLOW: self._zk_slow,
            Kind.ZK_OUTAGE: self._zk_outage,
            Kind.ZK_LAG: self._zk_lag,
            Kind.DISK_FULL: self._disk_full,
            Kind.DISK_FAILS: self._disk_fails,
            Kind.DISK_SLOW: self._disk_slow,
            Kind.CLOCK_DRIFT: self._clock_drift,
            Kind.CLOCK_STEP: self._clock_step,
            Kind.DELETE_CONTROLLER: self._delete_controller,
            Kind.KILL_CLIENT: self._client,
        }

    def schedule(self, faults: Sequence[Fault]) -> None:
        """Have every fault happen at its time."""
        scheduler = self._world.scheduler
        for fault in faults:
            scheduler.at(fault.at_us - scheduler.now_us, partial(self._strike, fault))

    def _strike(self, fault: Fault) -> None:
        self._world.note("fault", host_of(BrokerId(fault.broker)), "%s", fault)
        undo = self._deeds[fault.kind](fault, self._world.hosts[BrokerId(fault.broker)])
        if undo is not None:

            def over() -> None:
                self._world.note("fault", host_of(BrokerId(fault.broker)), "over: %s", fault.kind.value)
                undo()

            self._world.scheduler.at(fault.for_us, over)

    # Processes

    def _die(self, host: Host, *, lossy: bool) -> None:
        if lossy:
            self._on_lossy_crash(host.broker)
        self._world.kill_agent(host.broker, lossy=lossy)

    def _kill_agent(self, fault: Fault, host: Host) -> Undo:
        self._die(host, lossy=fault.lossy)
        return lambda: self._world.start_agent(host.broker)

    def _kill_controller(self, fault: Fault, host: Host) -> None:
        del fault
        self._world.kill_controller(host.broker)

    def _stop_agent(self, fault: Fault, host: Host) -> None:
        world = self._world

        def gone() -> None:
            world.scheduler.at(fault.for_us // 4, partial(world.start_agent, host.broker))

        world.stop_agent(host.broker, gone)

    def _pause(self, processes: Sequence[Process | None]) -> Undo:
        paused = [process for process in processes if process is not None and process.alive]
        for process in paused:
            process.pause()

        def resume() -> None:
            for process in paused:
                process.resume()

        return resume

    def _strike_at_point(self, fault: Fault, host: Host, *, pause: bool) -> Undo:
        point = self._point_names[int(fault.detail * len(self._point_names))]
        of_controller = point.partition(".")[0] in CONTROLLER_PARTS
        name = f"controller-{host.broker}" if of_controller else f"agent-{host.broker}"
        self._world.note("fault", name, "will be struck at %s", point)

        def strike(process: Process) -> None:
            if pause:
                undo = self._pause([process])
                self._world.scheduler.at(fault.for_us, undo)
            elif of_controller:
                process.kill()
            else:
                self._die(host, lossy=fault.lossy)

        def over() -> None:
            self._points.disarm(name, point)
            self._world.start_agent(host.broker)

        self._points.arm(name, point, strike)
        return over

    def _crash_at_disk(self, fault: Fault, host: Host) -> Undo:
        left = int(fault.detail * 60)
        struck = False

        def count(_name: str, _path: str) -> None:
            nonlocal left, struck
            process = host.agent_process
            if struck or process is None or not process.alive:
                return
            left -= 1
            if left <= 0:
                struck = True
                host.disk.on_operation(None)
                self._world.note("fault", host.name, "dies at a disk operation")
                self._die(host, lossy=fault.lossy)
                process.check_alive()

        host.disk.on_operation(count)

        def over() -> None:
            if not struck:
                host.disk.on_operation(None)
            self._world.start_agent(host.broker)

        return over

    # The network

    def _hosts(self) -> list[str]:
        return [*(host.name for host in self._world.hosts.values()), CLIENTS]

    def _change(self, pairs: Sequence[tuple[str, str]], **changes: object) -> Undo:
        links = [self._world.network.link(source, target) for source, target in pairs]
        for link in links:
            for name, value in changes.items():
                setattr(link, name, value)

        def undo() -> None:
            for link in links:
                link.blocked, link.extra_us, link.loss = False, 0, 0.0

        return undo

    def _isolate(self, fault: Fault, host: Host) -> Undo:
        """From the other brokers; by chance also from clients and ZooKeeper."""
        others = [name for name in self._hosts() if name != host.name and (name != CLIENTS or fault.detail < 0.5)]
        pairs = [(host.name, other) for other in others] + [(other, host.name) for other in others]
        undo = self._change(pairs, blocked=True)
        if fault.detail % 0.5 < 0.25:
            return undo
        links = [link for name, link in sorted(self._world.zk_links.items()) if name.endswith(f"-{host.broker}")]
        for link in links:
            link.cut()

        def both() -> None:
            undo()
            _heal(links)

        return both

    def _one_way(self, fault: Fault, host: Host) -> Undo:
        other = host_of(BrokerId(fault.other))
        return self._change([(host.name, other)], blocked=True)

    def _split(self, fault: Fault, host: Host) -> Undo:
        other = host_of(BrokerId(fault.other))
        return self._change([(host.name, other), (other, host.name)], blocked=True)

    def _loss(self, fault: Fault, host: Host) -> Undo:
        pairs = [(one, other) for one in self._hosts() for other in self._hosts() if one != other]
        chosen = [pair for pair in pairs if host.name in pair] if fault.detail < 0.7 else pairs
        return self._change(chosen, loss=0.02 + fault.detail * 0.4)

    def _delay(self, fault: Fault, host: Host) -> Undo:
        other = host_of(BrokerId(fault.other)) if fault.detail < 0.6 else CLIENTS
        extra = int((0.05 + fault.detail * 5 % 1 * 6) * SECOND_US)
        return self._change([(host.name, other), (other, host.name)], extra_us=extra)

    def _lose_answers(self, fault: Fault, host: Host) -> Undo:
        """What others ask this host arrives; nothing of what it says does."""
        others = [name for name in self._hosts() if name != host.name]
        chosen = others if fault.detail < 0.5 else [host_of(BrokerId(fault.other))]
        return self._change([(host.name, other) for other in chosen], blocked=True)

    def _reset(self, fault: Fault, host: Host) -> None:
        for other in self._hosts():
            if other != host.name:
                self._world.network.reset(host.name, other)

    # ZooKeeper

    def _zk_names(self, fault: Fault, host: Host) -> list[str]:
        both = (f"agent-{host.broker}", f"controller-{host.broker}")
        names = both[:1] if fault.detail < 0.4 else both[1:] if fault.detail < 0.8 else both
        return [name for name in names if name in self._world.zk_links]

    def _zk_cut(self, fault: Fault, host: Host) -> Undo:
        links = [self._world.zk_links[name] for name in self._zk_names(fault, host)]
        for link in links:
            link.cut()
        return lambda: _heal(links)

    def _zk_lost_reply(self, fault: Fault, host: Host) -> None:
        for name in self._zk_names(fault, host):
            self._world.zk_links[name].lose_next_reply()

    def _zk_expire(self, fault: Fault, host: Host) -> None:
        for name in self._zk_names(fault, host):
            self._world.zk_links[name].expire()

    def _zk_slow(self, fault: Fault, host: Host) -> Undo:
        links = [self._world.zk_links[name] for name in self._zk_names(fault, host)]
        for link in links:
            link.delay(int(fault.detail * 0.8 * SECOND_US))
        return lambda: _heal(links)

    def _zk_outage(self, fault: Fault, host: Host) -> Undo:
        del fault, host
        links = [link for _, link in sorted(self._world.zk_links.items())]
        for link in links:
            link.cut()
        return lambda: _heal(links)

    def _zk_lag(self, fault: Fault, host: Host) -> Undo:
        server = int(fault.detail * 3)
        self._world.zookeeper.lag(server, int(fault.detail * 0.7 * SECOND_US))
        return lambda: self._world.zookeeper.lag(server, 0)

    # Disks and clocks

    def _disk_full(self, fault: Fault, host: Host) -> Undo:
        host.disk.fill(int(fault.detail * 4_000))
        return lambda: self._mend_disk(host)

    def _disk_fails(self, fault: Fault, host: Host) -> Undo:
        host.disk.fail(after=int(fault.detail * 40))
        return lambda: self._mend_disk(host)

    def _mend_disk(self, host: Host) -> None:
        host.disk.heal()
        self._world.start_agent(host.broker)

    def _disk_slow(self, fault: Fault, host: Host) -> Undo:
        host.disk.slow(int(fault.detail * SECOND_US))
        return lambda: host.disk.slow(0)

    def _clock_drift(self, fault: Fault, host: Host) -> Undo:
        processes = [each for each in (host.agent_process, host.controller_process) if each is not None]
        rate = 1_000_000 + int((fault.detail - 0.5) * 400_000)
        _drift(processes, rate)
        return lambda: _drift(processes, 1_000_000)

    def _clock_step(self, fault: Fault, host: Host) -> None:
        for process in (host.agent_process, host.controller_process):
            if process is not None:
                process.clock.step(int((fault.detail - 0.5) * 7_200_000))

    # Others

    def _delete_controller(self, fault: Fault, host: Host) -> None:
        del fault, host
        self._world.zookeeper.delete_as_admin(znode_paths.CONTROLLER)

    def _client(self, fault: Fault, host: Host) -> None:
        del host
        self._kill_client(fault.detail)


def _heal(links: Sequence[ZkLink]) -> None:
    for link in links:
        link.heal()


def _drift(processes: Sequence[Process], rate_ppm: int) -> None:
    for process in processes:
        process.clock.drift(rate_ppm)
