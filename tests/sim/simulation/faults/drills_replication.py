"""Drills of replication: chains of events that a known hole of Kafka needs, done as the cluster's state allows."""

from __future__ import annotations

from contextlib import ExitStack

from regency.model.znodes import paths as znode_paths
from simulation.faults.network_faults import Trouble
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.scripts import Script, Scripts
from simulation.faults.stage import Deed, Stage


def deeds(stage: Stage) -> dict[Kind, Deed]:
    """The faults of this file."""
    drills = _Drills(stage)
    return {
        Kind.DRILL_ISR_WRITES: drills.of(drills.isr_writes),
        Kind.DRILL_LEAVING: drills.of(drills.leaving),
        Kind.DRILL_TRUNCATIONS: drills.of(drills.truncations),
    }


class _Drills(Scripts):
    def isr_writes(self, fault: Fault, undone: ExitStack) -> Script:
        """A leader's ISR change is on its way to ZooKeeper, or the reply is, when another member of the ISR restarts.

        Either the controller knows at once, and tells the leader before ZooKeeper's reply does; or it knows too late.
        """
        chance = fault.chance()
        knows = self._done % 2 == 1
        yield lambda: bool(self._full())
        led = chance.choice(self._full())
        leader = led.state.leader
        joins, restarts = chance.sample(led.followers, 2)
        agent, controllers = f"agent-{leader}", [f"controller-{each}" for each in self._world.hosts]

        way: list[ExitStack] = []

        def strike() -> None:
            if not knows:
                undone.enter_context(self._trouble_zookeeper(controllers, there=True, back=True))
            way.append(undone.enter_context(self._trouble_zookeeper([agent], there=not knows, back=knows)))

        self._expire(joins)
        yield lambda: joins not in self._isr(led.partition)
        yield self._struck(leader, "agent.isr.after_guards_read", strike)
        before = self._registration(restarts)
        yield 0.005  # in which the change arrives, where it can
        self._expire(restarts)
        yield lambda: self._registration(restarts) not in (0, before)
        yield 0.1 + 0.4 * chance.random() if knows else 0.01
        way[0].close()
        yield 0.4

    def leaving(self, fault: Fault, undone: ExitStack) -> Script:
        """A follower that is about to join the ISR stops; its last fetch arrives when everybody knows that it does.

        When it closes its logs, its disk fails once.
        """
        chance = fault.chance()
        yield lambda: bool(self._full())
        full = [led for led in self._full() if led.state.leader != self._ruler()]
        if not full:
            self._world.zookeeper.delete_as_admin(znode_paths.CONTROLLER)
            yield 0.5
            yield lambda: any(led.state.leader != self._ruler() for led in self._full())
            full = [led for led in self._full() if led.state.leader != self._ruler()]
        led, ruler = chance.choice(full), self._ruler()
        leader, leaves = led.state.leader, next(each for each in led.followers if each != ruler)
        host = self._world.hosts[leaves]
        before = self._registration(leaves)

        slow = Trouble(extra_us=int((0.1 + 0.4 * chance.random()) * SECOND_US))
        undone.enter_context(self._trouble(leaves, leader, slow))
        self._expire(leaves)
        yield lambda: self._registration(leaves) not in (0, before) and leaves not in self._isr(led.partition)
        yield self._struck(leaves, "fetcher.records.before_taken", lambda: None)
        yield 0.01
        if ruler is not None:
            undone.enter_context(self._trouble(ruler, leaves, Trouble(blocked=True)))
        self._struck(leaves, "log.closing.before_flush", lambda: host.disk.fail(once=True))
        self._world.stop_agent(leaves, lambda: self._stage.start_again(host, SECOND_US // 4))
        yield 1.5

    def truncations(self, fault: Fault, undone: ExitStack) -> Script:
        """One after the other by turns."""
        order = (self.epoch_in_between, self.later_epoch_of_nothing)
        script = order[(self._done - 1) % len(order)]
        self._stage.note("drill", "%s", script.__name__.replace("_", " "))
        yield from script(fault, undone)

    def later_epoch_of_nothing(self, fault: Fault, undone: ExitStack) -> Script:
        """A replica has batches of a later epoch of which none was committed, and lacks committed ones of an earlier.

        The last in sync has committed these without a batch of its own, and is back from a power cut that took nothing.
        """
        yield lambda: bool(self._full())
        led = fault.chance().choice(self._full())
        partition, old = led.partition, led.state.leader
        lacks, last = [each for each in self._replicas(partition) if each != old]
        apart = undone.enter_context(self._apart(lacks, old))
        yield lambda: self._end(last, partition) > self._end(lacks, partition)
        for follower, leader in ((last, lacks), (old, lacks), (old, last)):
            apart.enter_context(self._apart(follower, leader))
        self._expire(old)
        yield lambda: self._leads(lacks, partition) and old not in self._isr(partition)
        begun = self._end(lacks, partition)
        yield lambda: self._end(lacks, partition) > begun
        undone.enter_context(self._without_clients(last))
        down = undone.enter_context(self._end_agent(lacks))
        yield lambda: self._leads(last, partition)
        apart.close()
        yield lambda: self._high_watermark(last, partition) == self._end(last, partition)
        undone.enter_context(self._apart(old, last))
        self._expire(old)
        yield lambda: self._isr(partition) == (last,)
        self._world.hosts[last].disk.tree.sync()  # the kernel has written it all
        lost = undone.enter_context(self._end_agent(last, lossy=True))
        down.close()
        yield lambda: self._registration(lacks) != 0 and self._held(lacks, partition) is not None
        lost.close()
        yield lambda: (now := self._state(partition)) is not None and now.has_leader
        yield 0.5

    def epoch_in_between(self, fault: Fault, undone: ExitStack) -> Script:
        """A follower has the end of one epoch and a later one, and its leader neither, but an epoch in between.

        It has been flushed meanwhile; and it loses power when it has copied what its leader has instead.
        """
        chance = fault.chance()
        yield lambda: bool(self._full())
        partition = chance.choice(self._full()).partition
        first, second, third = self._replicas(partition)
        if not self._leads(third, partition):
            self._expire(first, second)
            yield lambda: self._leads(third, partition)
            yield lambda: len(self._isr(partition)) == 3

        # The third leads, and only the second copies.
        apart = undone.enter_context(self._apart(first, third))
        yield lambda: self._end(second, partition) > self._end(first, partition)
        deaf = undone.enter_context(self._apart(second, first))
        agreed = self._end(first, partition)
        self._expire(third)
        yield lambda: self._leads(first, partition)
        apart.close()
        # The first leads, and only the third copies, beyond where the second will begin: no offset tells them apart.
        agreed = self._end(second, partition)
        yield lambda: third in self._isr(partition) and self._end(third, partition) > agreed
        apart = undone.enter_context(self._apart(third, second))
        apart.enter_context(self._apart(first, second))
        self._expire(first)
        yield lambda: self._leads(second, partition)
        deaf.close()
        # The second leads, and nobody copies: it stops in order, and the third leads.
        begun = self._end(second, partition)
        yield lambda: self._end(second, partition) > begun
        host = self._world.hosts[second]
        start = ExitStack()
        start.callback(self._stage.keep_down(host))
        undone.enter_context(start)
        flushed = self._end(second, partition)
        gone: list[bool] = []
        self._world.stop_agent(second, lambda: gone.append(True))
        yield lambda: bool(gone)
        self._world.zk_links[f"controller-{second}"].expire()
        apart.close()
        yield lambda: self._leads(third, partition)
        yield lambda: self._high_watermark(third, partition) > agreed
        start.close()
        yield lambda: self._end(second, partition) >= max(flushed + 1, self._end(third, partition))
        yield 0.2 * chance.random()
        self._stage.die(host, lossy=True, wholly=False)
        self._stage.later(SECOND_US // 4, self._stage.keep_down(host))
