"""The network between simulated hosts: connections carry one request and its answer, and every link can fail.

A link is directed. What it loses is lost in silence, as on a real network: whoever waits finds out by his own timeout.
A peer that is dead but reachable refuses. A request may arrive long after its sender has given it up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache, partial
from typing import Any, Protocol

from regency.model.ids import BrokerId
from simulation.kernel.scheduler import Process, Scheduler, Timer

Respond = Callable[[Any], None]
Serve = Callable[[Any, Respond], "Callable[[], None] | None"]
"""Takes a request and how to answer it, on the server's process; what it returns is called if the caller goes away."""

Tap = Callable[[Process, str, str, Any], bool]
"""Sees a request: who sends it, from which host, to which address, and what it says. True: it gets lost."""

FASTEST_US = 80
USUAL_US = 400
"""A message takes FASTEST_US to FASTEST_US + USUAL_US microseconds where nothing is wrong."""


class NetFailed:
    """No answer; what became of the request is not known unless `unsent`. `late`: not within its time."""

    __slots__ = ("late", "unsent", "why")

    def __init__(self, why: str, *, unsent: bool = False, late: bool = False) -> None:
        self.why = why
        self.late = late
        self.unsent = unsent


class Observer(Protocol):
    """Hears of what the network lost."""

    def __call__(self, what: str, source: str, target: str) -> None: ...


class Link:
    """One direction between two hosts."""

    __slots__ = ("blocked", "extra_us", "late", "loss")

    def __init__(self) -> None:
        self.blocked = False
        self.extra_us = 0
        """A late message takes up to so much longer."""
        self.late = 1.0
        """The share of messages that are late, where there is something to be late by."""
        self.loss = 0.0

    @property
    def well(self) -> bool:
        return not (self.blocked or self.extra_us or self.loss)

    def heal(self) -> None:
        self.blocked, self.extra_us, self.late, self.loss = False, 0, 1.0, 0.0


class Channel:
    """Keeps the requests of one connection in order, and their answers: behind what is lost, nothing arrives."""

    __slots__ = ("_last_there", "last_back", "stalled_back", "stalled_there")

    def __init__(self) -> None:
        self._last_there = 0
        self.last_back = 0
        self.stalled_there = False
        self.stalled_back = False

    def there(self, arrival_us: int) -> int:
        """When a message arrives that alone would at `arrival_us`."""
        self._last_there = max(arrival_us, self._last_there + 1)
        return self._last_there

    def back(self, arrival_us: int) -> int:
        self.last_back = max(arrival_us, self.last_back + 1)
        return self.last_back


class Connection:
    """What the calls of one channel go over. Established by its first answer; then the network may forget it.

    What is sent on a forgotten connection, in either direction, is lost, the news that its other end is gone too: until
    its owner takes another one, or misses the answer to a ping, `keepalive_us` (every, and how long for the answer).
    """

    __slots__ = ("_heard_us", "_keepalive_us", "calls", "forgotten", "of_loop", "owner", "pair")

    def __init__(self, owner: Process, keepalive_us: tuple[int, int] | None = None, *, of_loop: bool = False) -> None:
        self.owner = owner
        self.of_loop = of_loop
        """Whether its owner's data loop takes the answers."""
        self.pair: tuple[str, str] | None = None
        """The hosts it joins, once it is established."""
        self.forgotten = False
        self.calls: dict[Call, None] = {}
        self._heard_us = 0
        self._keepalive_us = keepalive_us

    def heard(self, now_us: int) -> None:
        self._heard_us = now_us

    def forget(self, scheduler: Scheduler) -> None:
        self.forgotten = True
        if self._keepalive_us is not None:
            every_us, wait_us = self._keepalive_us
            next_us = every_us - (scheduler.now_us - self._heard_us) % every_us
            scheduler.at(next_us + wait_us, self._missed, self.owner)

    def _missed(self) -> None:
        """A ping was not answered: the calls under way fail, and those after them have a connection of their own."""
        self.forgotten, self.pair = False, None
        for call in list(self.calls):
            call.finish(NetFailed("a ping was not answered"))


class _Endpoint:
    __slots__ = ("calls", "host", "of_loop", "process", "serve")

    def __init__(self, host: str, process: Process, serve: Serve, of_loop: bool) -> None:
        self.host = host
        self.of_loop = of_loop
        self.process = process
        self.serve = serve
        self.calls: dict[Call, None] = {}


class Call:
    """A request on its way, and its answer."""

    __slots__ = (
        "_abandoned",
        "_done",
        "_network",
        "_withdraw",
        "address",
        "answered",
        "caller",
        "channel",
        "connection",
        "endpoint",
        "request",
        "source",
        "timer",
    )

    def __init__(
        self,
        network: Network,
        caller: Process,
        source: str,
        address: str,
        request: Any,
        done: Callable[[Any], None],
        channel: Channel | None,
        connection: Connection | None = None,
    ) -> None:
        self.caller = caller
        self.source = source
        self.address = address
        self.request = request
        self.channel = channel
        self.connection = connection
        self.answered = False
        self.timer: Timer | None = None
        self.endpoint: _Endpoint | None = None
        """Who serves it, from its arrival on."""
        self._network = network
        self._done: Callable[[Any], None] | None = done
        self._abandoned = False
        self._withdraw: Callable[[], None] | None = None

    def finish(self, outcome: Any) -> None:
        if self.answered:
            return
        self.answered = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.connection is not None:
            self.connection.calls.pop(self, None)
        done, self._done = self._done, None
        if done is not None and not self._abandoned:
            done(outcome)

    def time_out(self) -> None:
        if not self.answered:
            self.finish(NetFailed("no answer in time", late=True))
            self._network.hang_up(self)

    def close(self) -> None:
        """The caller closes the connection: he is told nothing any more."""
        if not self.answered:
            self._abandoned = True
            self.finish(None)
            self._network.hang_up(self)

    def arrive(self) -> None:
        self._network.arrive(self)

    def serve(self) -> None:
        """Its turn has come on the server's process."""
        endpoint = self.endpoint
        assert endpoint is not None
        withdraw = endpoint.serve(self.request, self.respond)
        if self in endpoint.calls:
            self._withdraw = withdraw

    def respond(self, answer: Any) -> None:
        """The server answers: once, and not where nobody waits any more."""
        endpoint = self.endpoint
        assert endpoint is not None
        if self in endpoint.calls:
            del endpoint.calls[self]
            self._withdraw = None
            self._network.back(endpoint.host, self, answer, self.channel)

    def withdraw(self) -> None:
        withdraw, self._withdraw = self._withdraw, None
        if withdraw is not None:
            withdraw()


class Network:
    """All links and endpoints."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._endpoints: dict[str, _Endpoint] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._connections: dict[Connection, None] = {}
        """Those that are established."""
        self.observe: Observer | None = None
        self.tap: Tap | None = None
        """Sees every request, until `heal`."""
        self.on_silence: Callable[[BrokerId], None] | None = None
        """Told of every broker that does not say in time how far its logs go."""
        self.forge: Callable[[str, Any, Any], Any] | None = None
        """What becomes of an answer: the address, the request and the answer; until `heal`."""
        self.on_ask: Callable[[Process, str, Any], None] | None = None
        """Hears of a controller's thread that is about to ask an agent at an address, and may keep it."""

    def link(self, source: str, target: str) -> Link:
        key = (source, target)
        try:
            return self._links[key]
        except KeyError:
            link = self._links[key] = Link()
            return link

    def links(self) -> list[tuple[tuple[str, str], Link]]:
        """Every link that was ever used, in order of names."""
        return sorted(self._links.items(), key=lambda each: each[0])

    def heal(self) -> None:
        self.tap = self.forge = None
        for link in self._links.values():
            link.heal()

    def listen(self, address: str, host: str, process: Process, serve: Serve, *, of_loop: bool = False) -> None:
        """Serve `address` (host:port) until the process dies or `unlisten`; `of_loop`: on its data loop."""
        endpoint = _Endpoint(host, process, serve, of_loop)
        self._endpoints[address] = endpoint
        process.on_death(lambda: self._gone(endpoint))

    def unlisten(self, address: str, process: Process) -> None:
        """Refuse connections to `address`, and break those there are."""
        endpoint = self._endpoints.get(address)
        if endpoint is not None and endpoint.process is process:
            del self._endpoints[address]
            self._gone(endpoint)

    def reset(self, one: str, other: str) -> None:
        for _, endpoint in sorted(self._endpoints.items()):
            for call in list(endpoint.calls):
                if {call.source, endpoint.host} == {one, other}:
                    self._broken(endpoint, call, "the connection was reset")

    def forget(self, pairs: Collection[tuple[str, str]]) -> int:
        """Let nothing pass any more on the connections there are between these hosts, each named first; how many."""
        forgotten = 0
        for connection in list(self._connections):
            if not connection.owner.alive or connection.pair is None:
                del self._connections[connection]
            elif connection.pair in pairs:
                del self._connections[connection]
                connection.forget(self._scheduler)
                forgotten += 1
        return forgotten

    def hung_up(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    def call(
        self,
        caller: Process,
        source: str,
        address: str,
        request: Any,
        done: Callable[[Any], None],
        *,
        timeout_us: int,
        channel: Channel | None = None,
        connection: Connection | None = None,
    ) -> Call:
        """Send a request; `done` is called once on the caller's process with the answer, or NetFailed."""
        caller.check_alive()
        scheduler = self._scheduler
        call = Call(self, caller, source, address, request, done, channel, connection)
        if connection is not None:
            connection.calls[call] = None
        of_loop = connection is not None and connection.of_loop
        call.timer = scheduler.at(timeout_us, call.time_out, caller, of_loop=of_loop)
        if connection is not None and connection.forgotten:
            self._lost("request", source, address)
            return call
        if self.tap is not None and self.tap(caller, source, address, request):
            self._lost("request", source, address)
            return call
        delay = self._delay(self.link(source, _host(address)))
        if channel is not None and (delay is None or channel.stalled_there):
            channel.stalled_there, delay = True, None
        if delay is None:
            self._lost("request", source, address)
            return call
        if channel is not None:
            delay = channel.there(scheduler.now_us + delay) - scheduler.now_us
        scheduler.at(delay, call.arrive, is_watched=False)
        return call

    def deliver(self, caller: Process, source: str, address: str, request: Any) -> None:
        """What the network had kept of a request arrives now, or a copy of it; nobody waits for the answer."""
        self.arrive(Call(self, caller, source, address, request, _nobody, None))

    # What calls do

    def arrive(self, call: Call) -> None:
        """A request is where it was sent: it is served, or refused."""
        endpoint = self._endpoints.get(call.address)
        if endpoint is None or not endpoint.process.alive:
            self.back(_host(call.address), call, NetFailed("the connection was refused", unsent=True), None)
            return
        call.endpoint = endpoint
        endpoint.calls[call] = None
        self._scheduler.at(0, call.serve, endpoint.process, of_loop=endpoint.of_loop)

    def back(self, host: str, call: Call, answer: Any, channel: Channel | None) -> None:
        connection = call.connection
        if connection is not None:
            if connection.forgotten:
                self._lost("answer", host, call.source)
                return
            if call.endpoint is not None:
                connection.pair = (call.source, host)
                connection.heard(self._scheduler.now_us)
                self._connections[connection] = None
        if self.forge is not None:
            answer = self.forge(call.address, call.request, answer)
        delay = self._delay(self.link(host, call.source))
        if channel is not None and (delay is None or channel.stalled_back):
            channel.stalled_back, delay = True, None
        if delay is None:
            self._lost("answer", host, call.source)
            return
        scheduler = self._scheduler
        if channel is not None:
            delay = channel.back(scheduler.now_us + delay) - scheduler.now_us
        of_loop = connection is not None and connection.of_loop
        scheduler.at(delay, partial(call.finish, answer), call.caller, of_loop=of_loop)

    def hang_up(self, call: Call) -> None:
        """The caller has closed the connection, which the server learns where the link lets it."""
        endpoint = self._endpoints.get(call.address)
        if endpoint is None or call not in endpoint.calls:
            return
        if call.connection is not None and call.connection.forgotten:
            return
        delay = self._delay(self.link(call.source, endpoint.host))
        if delay is not None:
            withdrawn = partial(self._withdrawn, endpoint, call)
            self._scheduler.at(delay, withdrawn, endpoint.process, of_loop=endpoint.of_loop)

    def _delay(self, link: Link) -> int | None:
        chance = self._scheduler.random
        if link.blocked or (link.loss and chance.random() < link.loss):
            return None
        delay = FASTEST_US + int(chance.random() * USUAL_US)
        if link.extra_us and (link.late >= 1 or chance.random() < link.late):
            delay += int(chance.random() * link.extra_us)
        return delay

    def _withdrawn(self, endpoint: _Endpoint, call: Call) -> None:
        if call in endpoint.calls:
            del endpoint.calls[call]
            call.withdraw()

    def _gone(self, endpoint: _Endpoint) -> None:
        for call in list(endpoint.calls):
            self._broken(endpoint, call, "the peer is gone")

    def _broken(self, endpoint: _Endpoint, call: Call, why: str) -> None:
        del endpoint.calls[call]
        self.back(endpoint.host, call, NetFailed(why), None)
        if endpoint.process.alive:
            self._scheduler.at(0, call.withdraw, endpoint.process, of_loop=endpoint.of_loop)

    def _lost(self, what: str, source: str, target: str) -> None:
        if self.observe is not None:
            self.observe(what, source, target)


def _nobody(_: Any) -> None:
    """Nobody waits for an answer."""


@cache
def _host(address: str) -> str:
    return address.partition(":")[0]
