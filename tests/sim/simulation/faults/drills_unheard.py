"""Drills of what one party does while another does not hear it: sessions that end, brokers that come and go.

Every play of a run is the next one of them, and the last one again and again: what a hole leaves wrong by it would be
put right by what any other does.
"""

from __future__ import annotations

from contextlib import ExitStack

import msgspec

from regency.model import znodes
from regency.model.facts import ReplicaAssignment
from regency.model.ids import BrokerEpoch, BrokerId, TopicPartition, ZkVersion
from regency.model.znodes import paths
from simulation.cluster.channels import KAFKA
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.scripts import Led, Script, Scripts
from simulation.faults.stage import Deed, Stage
from simulation.kernel.scheduler import Process
from simulation.shape import MARKS_MS

ENOUGH = 4
"""Records that are not synced, so that a power cut hardly leaves them all."""
WITHOUT_ADDRESS_US = 2 * SECOND_US
"""How long a leader is registered without the listener that followers use, at most."""


def deeds(stage: Stage) -> dict[Kind, Deed]:
    """The faults of this file."""
    drills = _Drills(stage)
    return {Kind.DRILL_UNHEARD: drills.of(drills.unheard)}


class _Drills(Scripts):
    def unheard(self, fault: Fault, undone: ExitStack) -> Script:
        """The next one."""
        order = (
            self.stale_join,
            self.write_of_a_lost_session,
            self.half_told,
            self.contact_lost_again_and_again,
            self.power_cuts_at_elections,
            self.returning_together,
        )
        script = order[min(self._done, len(order)) - 1]
        self._stage.note("drill", "%s", script.__name__.replace("_", " "))
        yield from script(fault, undone)

    # Registrations and ISR changes

    def stale_join(self, fault: Fault, undone: ExitStack) -> Script:
        """A leader takes in who has just died, or lost power, and was taken out by nobody, as it was in no ISR.

        The controller hears of the ISR when the member has registered again, maybe with less than it had; and then the
        leader loses its session.
        """
        chance = fault.chance()
        yield lambda: bool(self._full())
        if not self._joinable():  # who rules would be elected everywhere: let another rule
            self._world.zookeeper.delete_as_admin(paths.CONTROLLER)
            yield 0.3
            yield lambda: bool(self._joinable())
        yield lambda: bool(self._losing())
        led, joins = chance.choice(self._losing())
        leader = led.state.leader
        self._expire(joins)
        yield lambda: joins not in self._isr(led.partition)
        write = self._stalled(
            f"agent-{leader}",
            "agent.isr.after_guards_read",
            undone,
            when=lambda: self._is_taken_in(joins, leader, led.partition),
        )
        yield lambda: write.reached and self._unsynced(joins, led.partition) >= ENOUGH
        down = undone.enter_context(self._end_agent(joins, lossy=chance.random() > 0.5))
        yield lambda: bool(self._known()) and joins not in self._known()
        news = self._stalled(f"agent-{leader}", "agent.isr_notification.before_write", undone)
        write.end()
        yield lambda: news.reached
        undone.enter_context(self._apart(joins, leader))
        down.close()
        yield lambda: self._known().get(joins) == self._registration(joins) != 0
        yield lambda: self._held(joins, led.partition) is not None
        news.end()
        yield lambda: not self._world.zookeeper.children(paths.ISR_CHANGE_NOTIFICATION)
        yield 0.05
        self._expire(leader)
        yield 0.5

    def power_cuts_at_elections(self, fault: Fault, undone: ExitStack) -> Script:
        """Power is cut at the last one in sync, and at a member while who rules elects."""
        with ExitStack() as at_end:
            yield from self._last_in_sync(fault, at_end)
        yield from self._restart_unseen(fault, undone)

    def _restart_unseen(self, fault: Fault, undone: ExitStack) -> Script:
        """A leader has died, and who rules is about to write the next one when a member loses power and is back."""
        chance = fault.chance()
        yield lambda: bool(self._full_without_ruler())
        led = chance.choice(self._full_without_ruler())
        restarts = chance.choice([each for each in led.followers if each != self._ruler()])
        write = self._stalled(f"controller-{self._ruler()}", "controller.election.before_write", undone)
        undone.enter_context(self._end_agent(led.state.leader))
        yield lambda: write.reached
        down = undone.enter_context(self._end_agent(restarts, lossy=True))
        down.close()
        yield lambda: self._registration(restarts) != 0
        write.end()
        yield 0.5

    def _last_in_sync(self, fault: Fault, undone: ExitStack) -> Script:
        """A leader whose followers were taken out, with all that was acknowledged, loses power, and is back first."""
        yield lambda: bool(self._losing_alone())
        led = fault.chance().choice(self._losing_alone())
        last = led.state.leader
        for follower in led.followers:
            undone.enter_context(self._apart(follower, last))
        self._expire(*led.followers)
        yield lambda: self._isr(led.partition) == (last,)
        yield lambda: all(self._registration(each) for each in led.followers)
        down = undone.enter_context(self._end_agent(last, lossy=True))
        yield lambda: bool(self._known()) and last not in self._known()
        down.close()
        yield lambda: (now := self._state(led.partition)) is not None and now.has_leader
        yield 0.5

    def _losing_alone(self) -> list[Led]:
        """Those of them where a power cut takes what is acknowledged from the leader."""
        return [
            each for each in self._full_without_ruler() if self._unsynced(each.state.leader, each.partition) >= ENOUGH
        ]

    def _full_without_ruler(self) -> list[Led]:
        """Partitions with all in sync, which who rules does not lead."""
        return [led for led in self._full() if led.state.leader != self._ruler()]

    def _joinable(self) -> list[tuple[Led, BrokerId]]:
        """Partitions with all in sync, and who would be elected after its leader, which does not rule.

        Of topics that must not lose what one replica loses, if there are any.
        """
        found = []
        for led in self._full():
            first = next(each for each in self._replicas(led.partition) if each != led.state.leader)
            if first != self._ruler():
                found.append((led, first))
        safe = {topic.name for topic in self._world.shape.topics if topic.min_insync > 1 and not topic.unclean}
        return [each for each in found if each[0].partition.topic in safe] or found

    def _is_taken_in(self, joins: BrokerId, leader: BrokerId, partition: TopicPartition) -> bool:
        """Whether the leader counts it as in sync."""
        held = self._held(leader, partition)
        return held is not None and joins in held.isr.maximal

    def _losing(self) -> list[tuple[Led, BrokerId]]:
        """Those of them where a power cut takes what is acknowledged from who joins."""
        return [each for each in self._joinable() if self._unsynced(each[1], each[0].partition) > 0]

    def _unsynced(self, broker: BrokerId, partition: TopicPartition) -> int:
        """How many records of a replica are committed and not synced."""
        held = self._held(broker, partition)
        return 0 if held is None else held.log.high_watermark - held.log.recovery_point

    def write_of_a_lost_session(self, fault: Fault, undone: ExitStack) -> Script:
        """A leader is about to write an ISR when it takes its session for lost, which lives on, and gets another.

        ZooKeeper still has the registration of the one before.
        """
        chance = fault.chance()
        yield lambda: bool(self._full())
        led = chance.choice(self._full())
        leader = led.state.leader
        joins, agent = chance.choice(led.followers), f"agent-{leader}"
        self._expire(joins)
        yield lambda: joins not in self._isr(led.partition)
        write = self._stalled(agent, "agent.isr.before_write", undone)
        yield lambda: write.reached
        mute = undone.enter_context(self._trouble_zookeeper([agent], back=True))
        yield lambda: self._session_of(leader) == 0
        registers = self._stalled(agent, "agent.registration.before_create", undone)
        mute.close()
        yield lambda: registers.reached
        write.end()
        yield 0.05
        registers.end()
        yield 0.3

    def _session_of(self, broker: BrokerId) -> int:
        session = self._world.agents[broker].session
        return 0 if session is None else session.session_id

    def half_told(self, fault: Fault, undone: ExitStack) -> Script:
        """A broker that died is back, and is told of some of its partitions seconds before it is told of the others."""
        yield lambda: bool(self._known())
        broker = fault.chance().choice([each for each in self._world.hosts if each != self._ruler()])
        down = undone.enter_context(self._end_agent(broker))
        yield lambda: bool(self._known()) and broker not in self._known()
        rest = self._stalled(
            f"agent-{broker}", "agent.control.before_slice", undone, when=lambda: self._hosts_some(broker)
        )
        down.close()
        yield lambda: rest.reached
        yield 1.5 * MARKS_MS / 1000
        rest.end()
        yield 0.3

    def _hosts_some(self, broker: BrokerId) -> bool:
        agent = self._world.agents[broker]
        return agent.replicas is not None and bool(agent.replicas.partitions)

    # Controllers

    def contact_lost_again_and_again(self, fault: Fault, undone: ExitStack) -> Script:
        """Whoever rules cannot write although its session lives, gives up, and cannot take /controller away either."""
        yield lambda: bool(self._known())
        ruler = self._ruler()
        if ruler is None:
            return
        name, points = f"controller-{ruler}", self._stage.points
        link = self._world.zk_links[name]
        gave_up: list[bool] = []

        def lose(process: Process) -> None:
            del process
            if not gave_up:
                link.lose_next_request()
                points.arm([name], ["fenced.batches.after_replies"], wait)

        def wait(process: Process) -> None:
            """Until there is contact again: who looks then does not see why its write was lost."""
            sim, scheduler = self._world.controllers[ruler], self._world.scheduler
            while process.alive and sim.session is not None and not sim.session.connected and not self._stage.closed:
                scheduler.sleep_us(1_000)
            points.arm([name], ["fenced.batches.before_send"], lose)

        def release(process: Process) -> None:
            del process
            link.lose_next_request()
            gave_up.append(True)

        undone.callback(gave_up.append, True)
        points.arm([name], ["controller.resignation.before_release"], release)
        points.arm([name], ["fenced.batches.before_send"], lose)
        self._expire(fault.chance().choice([each for each in self._world.hosts if each != ruler]))
        yield lambda: bool(gave_up)
        yield 0.3

    def returning_together(self, fault: Fault, undone: ExitStack) -> Script:
        """A partition is added whose replicas are all down; who rules hears that they are back when all of them are.

        Meanwhile a leader that they are to follow is registered without the listener that followers use. When they are
        back, they are given another partition, while one of them cannot read its settings. Then its preferred leader is
        asked for, and who rules loses contact before it hears of it.
        """
        chance = fault.chance()
        yield lambda: bool(self._known())
        ruler = self._ruler()
        if ruler is None:
            return
        replicas = chance.sample([each for each in self._world.hosts if each != ruler], 2)
        downs = [undone.enter_context(self._end_agent(each)) for each in replicas]
        yield lambda: bool(self._known()) and not any(each in self._known() for each in replicas)
        topic = chance.choice(self._world.shape.topics).name
        added = self._add_partition(topic, replicas)
        leader = self._led_by_others(replicas)
        if leader is not None:
            self._hide_address(leader)
            yield lambda: self._is_hidden(leader)
        yield 0.1
        deaf = undone.enter_context(self._trouble_zookeeper([f"controller-{ruler}"], there=True, back=True))
        for down in downs:
            down.close()
        yield lambda: all(self._registration(each) for each in replicas)
        deaf.close()
        yield lambda: len(self._isr(added)) == len(replicas)
        cut_off = chance.choice(replicas)
        yield lambda: self._held(cut_off, added) is not None
        agent = f"agent-{cut_off}"
        cut = undone.enter_context(self._trouble_zookeeper([agent], there=True, back=True))
        self._world.zk_links[agent].reset()
        yield 0.1
        more = self._add_partition(topic, replicas)
        yield lambda: bool(self._isr(more))
        yield 0.2
        cut.close()
        yield 0.3
        zookeeper = self._world.zookeeper
        zookeeper.write_as_admin(paths.PREFERRED_ELECTION, znodes.encode_preferred_election([more]))
        self._world.zk_links[f"controller-{ruler}"].reset()  # the watch that tells of it fires in vain
        yield lambda: zookeeper.read(paths.PREFERRED_ELECTION) is None

    def _led_by_others(self, followers: list[BrokerId]) -> BrokerId | None:
        """Who leads a partition of one of these followers."""
        for topic in self._world.shape.topics:
            for number in range(topic.partitions):
                partition = TopicPartition(topic.name, number)
                state = self._state(partition)
                if state is None or state.leader < 0 or state.leader in followers:
                    continue
                if any(each in followers for each in self._replicas(partition)):
                    return state.leader
        return None

    def _hide_address(self, broker: BrokerId) -> None:
        """Somebody writes a registration without the listener that followers use, and soon after rights it."""
        zookeeper, path = self._world.zookeeper, paths.broker(broker)
        held = zookeeper.read(path)
        if held is None:
            return
        epoch, whole = held.stat.czxid, held.data
        known = znodes.decode_broker(path, whole, id=broker, epoch=BrokerEpoch(epoch))
        rest = tuple(each for each in known.endpoints if each.port != KAFKA)
        self._stage.note("admin", "broker %d is registered without its address for followers", broker)
        zookeeper.write_as_admin(
            path, znodes.encode_broker(msgspec.structs.replace(known, endpoints=rest), timestamp_ms=0)
        )

        def show() -> None:
            if self._registration(broker) == epoch:
                zookeeper.write_as_admin(path, whole)

        self._world.scheduler.at(WITHOUT_ADDRESS_US, show)  # also when everything has been healed

    def _is_hidden(self, broker: BrokerId) -> bool:
        """Whether whoever rules knows a broker without its address."""
        controller = self._ruling()
        if controller is None or controller._term is None:
            return False
        known = controller._term.context.brokers.get(broker)
        return known is not None and all(each.port != KAFKA for each in known.endpoints)

    def _add_partition(self, name: str, replicas: list[BrokerId]) -> TopicPartition:
        """Somebody writes one more partition into a topic's znode."""
        zookeeper, path = self._world.zookeeper, paths.topic(name)
        held = zookeeper.read(path)
        assert held is not None
        version = ZkVersion(held.stat.version)
        topic = znodes.decode_topic(path, held.data, topic=name, zk_version=version, czxid=held.stat.czxid)
        number = max(topic.partitions) + 1
        partitions = {**topic.partitions, number: ReplicaAssignment(tuple(replicas))}
        grown = msgspec.structs.replace(topic, partitions=partitions)
        zookeeper.write_as_admin(path, znodes.encode_topic(grown, previous=held.data))
        return TopicPartition(name, number)
