"""What goes wrong with ZooKeeper, and on the way to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.stage import Deed, Stage, Undo, together
from simulation.world import Host
from simulation.zookeeper.link import ZkLink

MOST_LOST = 9
"""Replies that are lost in a row: more than anybody is patient for."""


class Trouble(NamedTuple):
    """What one fault does to a process's way to ZooKeeper."""

    there: bool = False
    back: bool = False
    extra_us: int = 0


CUT = Trouble(there=True, back=True)


def deeds(stage: Stage) -> dict[Kind, Deed]:
    faults = _ZookeeperFaults(stage)
    return {
        Kind.ZK_CUT: faults.cut,
        Kind.ZK_BLINK: partial(faults.blink, "controller"),
        Kind.ZK_BLINK_AGENTS: partial(faults.blink, "agent"),
        Kind.ZK_HALF_OPEN: faults.half_open,
        Kind.ZK_RESET: faults.reset,
        Kind.ZK_LOST_REPLY: faults.lose_replies,
        Kind.ZK_EXPIRE: faults.expire,
        Kind.ZK_SLOW: faults.slow,
        Kind.ZK_OUTAGE: faults.outage,
        Kind.ZK_SERVER: faults.stop_server,
        Kind.ZK_LAG: faults.lag,
    }


def afflict(stage: Stage, names: Sequence[str], trouble: Trouble) -> Undo:
    """Let the ways of these processes be in trouble, with whatever else troubles them."""
    links = stage.world.zk_links
    return together(
        [stage.lasts(("zookeeper", name), trouble, partial(_apply, links[name])) for name in names if name in links]
    )


def _apply(link: ZkLink, troubles: Sequence[Trouble]) -> None:
    link.suffer(
        there=any(trouble.there for trouble in troubles),
        back=any(trouble.back for trouble in troubles),
        extra_us=max((trouble.extra_us for trouble in troubles), default=0),
    )


class _ZookeeperFaults:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def _names(self, fault: Fault, host: Host) -> list[str]:
        both = (f"agent-{host.broker}", f"controller-{host.broker}")
        names = both[:1] if fault.detail < 0.4 else both[1:] if fault.detail < 0.8 else both
        return [name for name in names if name in self._stage.world.zk_links]

    def _links(self, fault: Fault, host: Host) -> list[ZkLink]:
        return [self._stage.world.zk_links[name] for name in self._names(fault, host)]

    def _everybody(self) -> list[str]:
        return sorted(self._stage.world.zk_links)

    def cut(self, fault: Fault, host: Host) -> Undo:
        """Processes of a host do not reach ZooKeeper."""
        return afflict(self._stage, self._names(fault, host), CUT)

    def blink(self, part: str, fault: Fault, host: Host) -> Undo:
        """All these processes lose contact for less than a session: they stay what they are, and miss what happens."""
        del host
        names = [f"{part}-{broker}" for broker in self._stage.world.hosts]
        undo = afflict(self._stage, names, CUT)
        self._stage.later(int((0.3 + 1.2 * fault.detail) * SECOND_US), undo)
        return undo

    def half_open(self, fault: Fault, host: Host) -> Undo:
        """They are not heard, or do not hear."""
        there = fault.detail * 10 % 1 < 0.5
        return afflict(self._stage, self._names(fault, host), Trouble(there=there, back=not there))

    def reset(self, fault: Fault, host: Host) -> Undo | None:
        """Connections break, once or again and again: sessions move to other servers."""
        stage, chance = self._stage, fault.chance()
        links = [stage.world.zk_links[name] for name in self._everybody()] if chance.random() < 0.3 else []
        links = links or self._links(fault, host)
        for _ in range(chance.choice((1, 1, 4, 12))):
            for link in links:
                stage.later(int(chance.random() * min(fault.for_us, 3 * SECOND_US)), link.reset)
        return None

    def lose_replies(self, fault: Fault, host: Host) -> None:
        """The answers to the next writes are lost, or the next write; by chance of who rules and has to write."""
        stage, chance = self._stage, fault.chance()
        links = self._links(fault, host)
        ruler = stage.world.ruler()
        if ruler is not None and chance.random() < 0.6:
            links = [stage.world.zk_links[f"controller-{ruler.broker}"]]
            others = [each for each in stage.world.hosts.values() if each is not ruler]
            bounced = chance.choice(others)
            stage.die(bounced, lossy=False)
            stage.later(int(chance.random() * SECOND_US), stage.keep_down(bounced))
        for link in links:
            times = chance.choice((1, 1, 2, 4, MOST_LOST, MOST_LOST))
            if chance.random() < 0.3:  # to who waits it looks the same
                link.lose_next_request()
            else:
                link.lose_next_reply(times)

    def expire(self, fault: Fault, host: Host) -> None:
        for link in self._links(fault, host):
            link.expire()

    def slow(self, fault: Fault, host: Host) -> Undo:
        extra_us = int(fault.detail * 0.8 * SECOND_US)
        return afflict(self._stage, self._names(fault, host), Trouble(extra_us=extra_us))

    def outage(self, fault: Fault, host: Host) -> Undo:
        del fault, host
        return afflict(self._stage, self._everybody(), CUT)

    def stop_server(self, fault: Fault, host: Host) -> Undo:
        """One server dies, the leader as likely as not; with two, nobody is served."""
        del host
        ensemble = self._stage.world.zookeeper
        number = ensemble.model.leader.number if fault.detail < 0.5 else int(fault.detail * 300) % 3

        def apply(values: Sequence[object]) -> None:
            if values:
                ensemble.stop_server(number)
            else:
                ensemble.start_server(number)

        return self._stage.lasts(("server", number), True, apply)

    def lag(self, fault: Fault, host: Host) -> Undo:
        """One server shows what was committed up to seconds ago."""
        del host
        ensemble = self._stage.world.zookeeper
        chance = fault.chance()
        number = chance.randrange(3)
        lag_us = int(chance.choice((0.2, 0.7, 4.0)) * fault.detail * SECOND_US)

        def apply(values: Sequence[int]) -> None:
            ensemble.lag(number, max(values, default=0))

        return self._stage.lasts(("lag", number), lag_us, apply)
