"""The way from a process to ZooKeeper, and what can go wrong on it.

A connection keeps its messages in order in either direction. While a direction is blocked, what is sent waits, as TCP
makes it wait: it arrives after `heal` where the connection still lives, perhaps even when the client has given it up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from regency.runtime.zookeeper.session import Op
from simulation.kernel.scheduler import Process, Scheduler
from simulation.zookeeper.server import ServerConnection

if TYPE_CHECKING:
    from simulation.zookeeper.ensemble import Ensemble

FASTEST_US: Final = 80
USUAL_US: Final = 400
RETRANSMIT_US: Final = 200_000
"""What waited behind a blockade arrives up to so many microseconds after its end."""

OnWrite = Callable[[Sequence[Sequence[Op]]], "Callable[[], None] | None"]
"""Hears of multis that an actor is about to send together, and may keep it; what it returns is called when they are."""


class ZkLink:
    """One process's way to all servers. Faults are set here, by whoever injects them."""

    __slots__ = (
        "_extra_us",
        "_held",
        "_scheduler",
        "_wires",
        "back_blocked",
        "lose_replies",
        "lose_requests",
        "lost_replies",
        "on_write",
        "owner",
        "there_blocked",
    )

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._extra_us = 0
        self._wires: dict[Wire, None] = {}
        self._held: list[tuple[Wire, bool, Callable[[], None]]] = []
        self.there_blocked = False
        self.back_blocked = False
        self.lose_requests = 0
        """Of so many multis from now on."""
        self.lose_replies = 0
        """Of so many multis from now on."""
        self.lost_replies = 0
        self.on_write: OnWrite | None = None
        self.owner: Callable[[], tuple[Ensemble, int]] | None = None
        """Tells the ensemble and the id of the session that uses this link."""

    # Faults

    def cut(self, *, there: bool = True, back: bool = True) -> None:
        """Nothing passes any more, from the process or to it; both sides find out by silence."""
        self.there_blocked = self.there_blocked or there
        self.back_blocked = self.back_blocked or back

    def delay(self, extra_us: int) -> None:
        """Every message takes up to `extra_us` microseconds longer."""
        self._extra_us = extra_us

    def heal(self) -> None:
        """Everything passes again, and what was held arrives."""
        self.lose_requests = self.lose_replies = 0
        self.suffer(there=False, back=False, extra_us=0)

    def suffer(self, *, there: bool, back: bool, extra_us: int) -> None:
        """Have just this wrong from now on: directions that are blocked, and delay. What can pass again arrives."""
        self.there_blocked, self.back_blocked, self._extra_us = there, back, extra_us
        held, self._held = self._held, []
        pause = int(self._scheduler.random.random() * RETRANSMIT_US) if held else 0
        for wire, to_server, work in held:
            wire.travel(work, there=to_server, pause_us=pause)

    def reset(self, *, executed: bool | None = None) -> None:
        """Break the connection: answers are lost, and requests under way unless they are `executed` (None: chance)."""
        if executed is None:
            executed = self._scheduler.random.random() < 0.5
        for wire in list(self._wires):
            wire.reset(executed=executed)

    def lose_next_reply(self, times: int = 1) -> None:
        """The next multis are executed, and each time the connection breaks instead of answering."""
        self.lose_replies = times

    def lose_next_request(self, times: int = 1) -> None:
        """Each time the connection breaks before the multi is executed."""
        self.lose_requests = times

    def expire(self) -> None:
        if self.owner is not None:
            ensemble, session_id = self.owner()
            ensemble.expire(session_id)

    # What connections do

    @property
    def blocked(self) -> bool:
        return self.there_blocked or self.back_blocked

    def open(self, ensemble: Ensemble, process: Process, broken: Callable[[Wire], None]) -> Wire:
        """A new connection of a process; `broken` is called when the other side or the network ends it."""
        wire = Wire(self, ensemble, self._scheduler, process, broken)
        self._wires[wire] = None
        return wire

    def latency_us(self) -> int:
        chance = self._scheduler.random.random
        delay = FASTEST_US + int(chance() * USUAL_US)
        return delay + int(chance() * self._extra_us) if self._extra_us else delay

    def hold(self, wire: Wire, work: Callable[[], None], *, there: bool) -> None:
        self._held.append((wire, there, work))

    def forget(self, wire: Wire, *, unsent: bool) -> None:
        """The client has closed a connection; `unsent`: what it sent behind a blockade is lost, too."""
        self._wires.pop(wire, None)
        if unsent:
            self._held = [each for each in self._held if each[0] is not wire]


class Wire:
    """One connection."""

    __slots__ = (
        "_back_us",
        "_broken",
        "_ensemble",
        "_lost_back",
        "_lost_there",
        "_process",
        "_scheduler",
        "_there_us",
        "client_open",
        "link",
        "server",
    )

    def __init__(
        self, link: ZkLink, ensemble: Ensemble, scheduler: Scheduler, process: Process, broken: Callable[[Wire], None]
    ) -> None:
        self.link = link
        self.client_open = True
        self.server: ServerConnection | None = None
        """The other end, once there is one."""
        self._ensemble = ensemble
        self._scheduler = scheduler
        self._process = process
        self._broken = broken
        self._there_us = 0
        self._back_us = 0
        self._lost_there = False
        self._lost_back = False

    def travel(self, work: Callable[[], None], *, there: bool, pause_us: int = 0) -> None:
        """Send a message: `work` is done where it arrives."""
        link, scheduler = self.link, self._scheduler
        if link.there_blocked if there else link.back_blocked:
            link.hold(self, work, there=there)
            return
        arrival = scheduler.now_us + pause_us + link.latency_us()
        if there:
            arrival = self._there_us = max(arrival, self._there_us)
            scheduler.at(arrival - scheduler.now_us, lambda: self._at_server(work))
        else:
            arrival = self._back_us = max(arrival, self._back_us)
            delay = arrival - scheduler.now_us
            scheduler.at(delay, lambda: self._at_client(work), self._process, is_watched=False)

    def request(self, execute: Callable[[ServerConnection], None], *, multi: bool = False) -> None:
        """Send a request: `execute` is called with the server's end of the connection, unless that is gone."""
        if multi and self.link.lose_requests:
            self.link.lose_requests -= 1
            self.reset(executed=False)
            return

        def arrive() -> None:
            server = self.server
            if server is not None and server.open:
                self._ensemble.heard_of(server)
                execute(server)

        self.travel(arrive, there=True)

    def reply(self, work: Callable[[], None], *, multi: bool = False) -> None:
        if multi and self.link.lose_replies:
            self.link.lose_replies -= 1
            self.link.lost_replies += 1
            self.reset(executed=True)
            return
        self.travel(work, there=False)

    def ended_by_server(self) -> None:
        """The server has closed its end: the client finds out after everything that was sent before."""
        self.travel(lambda: self._broken(self), there=False)

    def reset(self, *, executed: bool) -> None:
        """Break it: no answer arrives any more; what is on its way to the server does where it is `executed`."""
        if not self._lost_back:
            self._lost_back, self._lost_there = True, not executed
            self._scheduler.at(self.link.latency_us(), self._reset_at_client, self._process)
            arrival = max(self._scheduler.now_us + self.link.latency_us(), self._there_us)
            self._scheduler.at(arrival - self._scheduler.now_us, self._close_server)

    def close(self) -> None:
        """The client closes it. Perhaps what it has sent behind a blockade is still delivered after it."""
        if self.client_open:
            self.client_open = False
            self.travel(self._close_server, there=True)
            self.link.forget(self, unsent=self.link.there_blocked and self._scheduler.random.random() < 0.5)

    def _at_server(self, work: Callable[[], None]) -> None:
        if not self._lost_there:
            work()

    def _at_client(self, work: Callable[[], None]) -> None:
        if self.client_open and not self._lost_back:
            work()

    def _reset_at_client(self) -> None:
        if self.client_open:
            self._broken(self)

    def _close_server(self) -> None:
        if self.server is not None:
            self.server.on_close = None
            self.server.close()
