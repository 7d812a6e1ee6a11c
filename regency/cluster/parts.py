"""The processes of a lab, ZooKeeper and agents: found, started, signalled and ended, and each change noted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from regency.cluster.agent import Agent, agent_properties
from regency.cluster.errors import ClusterNotRunning, ClusterStartFailed, UnknownBroker
from regency.cluster.plan import refuse_taken_ports
from regency.cluster.process import processes
from regency.cluster.process.processes import ProcessState
from regency.cluster.process.spawner import ManagedProcess, Spawner
from regency.cluster.record import LabRecord
from regency.cluster.state import ZOOKEEPER, ClusterState, agent_name
from regency.cluster.status import ruler
from regency.cluster.verbs import ALL, CONTROLLER, Done, Target, Verb, as_partition, called, done, idle, parse_targets
from regency.cluster.zookeeper import EmbeddedZooKeeper
from regency.model.ids import BrokerId, TopicPartition
from regency.model.settings import parse_settings
from regency.model.words import listed

_POLL_S = 0.02
_ZOOKEEPER_GRACE_S = 5.0

Part = BrokerId | None
"""A broker's agent, or with None ZooKeeper."""


class Parts:
    """The processes of the lab in `directory`. One that was started by another program is found there by its identity.

    `ruler` tells whose controller rules, `leader` who leads a partition. `advice` spells a call that helps, for errors.
    """

    def __init__(
        self,
        directory: Path,
        state: ClusterState,
        *,
        detached: bool,
        start_timeout_s: float,
        agent_command: Sequence[str],
        ruler: Callable[[], BrokerId],
        leader: Callable[[TopicPartition], BrokerId],
    ) -> None:
        self.directory = directory
        self.record = LabRecord(directory)
        self.spawner = Spawner(detached=detached)
        self.agents: dict[BrokerId, Agent] = {}
        self.advice: Callable[[Verb, Target], str] = lambda verb, target: f"{verb.value}({target!r})"
        self._start_timeout_s = start_timeout_s
        self._agent_command = tuple(agent_command)
        self._ruler, self._leader = ruler, leader
        self._zookeeper: EmbeddedZooKeeper | None = None
        self.known = state
        self.take(state)

    def take(self, state: ClusterState) -> ClusterState:
        """Know the cluster as this; agents of brokers that are new are added."""
        self.known = state
        if state.zookeeper_port and (self._zookeeper is None or self._zookeeper.port != state.zookeeper_port):
            self._zookeeper = EmbeddedZooKeeper(
                self.directory / ZOOKEEPER, port=state.zookeeper_port, spawner=self.spawner
            )
        for broker in state.brokers:
            agent = self.agents.get(broker.id)
            if agent is None:
                self.agents[broker.id] = Agent(
                    broker,
                    self.directory / broker.name,
                    spawner=self.spawner,
                    log_dirs=state.log_dirs,
                    command=self._agent_command,
                )
            else:
                agent.broker = broker
        return state

    def refresh(self) -> ClusterState:
        """The cluster as its file has it now; as it was known where there is no file."""
        found = self.record.read()
        return self.known if found is None else self.take(found)

    def agent(self, broker: int) -> Agent:
        """The agent of a broker. Raises UnknownBroker."""
        found = self.agents.get(BrokerId(broker))
        if found is None:
            raise UnknownBroker(f"There is no broker {broker!r}.", hint=f"There are {listed(list(self.agents))}.")
        return found

    def own_zookeeper(self) -> EmbeddedZooKeeper | None:
        """The cluster's own ZooKeeper, whichever program started it; None where it uses another's."""
        server = self._zookeeper
        if server is not None and server.state is ProcessState.DEAD:
            alive = self.refresh().alive(self.directory)
            found = next((ref for ref in alive if ref.name == ZOOKEEPER), None)
            if found is not None:
                server.adopt(found)
        return server

    def everything(self) -> list[Target]:
        """ZooKeeper, where it is the cluster's own, and all brokers."""
        self.refresh()
        return [*([ZOOKEEPER] if self.known.zookeeper_port else []), *self.agents]

    def state_of(self, part: Part) -> ProcessState:
        """Running, paused or dead."""
        process = self._process(part)
        return ProcessState.DEAD if process is None else process.state

    def properties(self, agent: Agent) -> dict[str, str]:
        """server.properties of an agent, checked, so that a mistake is reported before anything is started."""
        state = self.known
        properties = agent_properties(
            agent.broker,
            agent.directory,
            brokers=len(state.brokers),
            zookeeper_connect=state.zookeeper_connect,
            session_timeout_ms=state.session_timeout_ms,
            log_dirs=state.log_dirs,
            settings={**state.settings, **state.broker_settings.get(agent.id, {})},
        )
        parse_settings(properties, source=f"settings of broker {agent.id}")
        return properties

    # Verbs

    def choose(self, targets: Sequence[Target]) -> list[Part]:
        """What these targets are now. Raises UnknownBroker, ClusterError; ClusterTimeout where none rules."""
        state = self.refresh()
        parsed = parse_targets(targets, list(self.agents), own_zookeeper=bool(state.zookeeper_port))
        parts: list[Part] = []
        for target in parsed:
            if target == ZOOKEEPER:
                part = None
            elif target == CONTROLLER:
                part = self._told("who rules", self._ruler)
            elif (partition := as_partition(target)) is not None:
                part = self._told(f"who leads {partition}", partial(self._leader, partition))
            else:
                part = BrokerId(int(target))
            if part not in parts:
                parts.append(part)
        return parts

    def act(self, verb: Verb, targets: Sequence[Target], *, grace_s: float, wait: bool = True) -> list[Done]:
        """Do it to every target; where another verb has to come first for one that was named, nothing is done.

        Raises ClusterNotRunning, ClusterStartFailed, NoFreePorts, and what `choose` raises.
        """
        return self.act_on(verb, self.choose(targets), grace_s=grace_s, wait=wait, skip=ALL in targets)

    def act_on(
        self, verb: Verb, parts: Sequence[Part], *, grace_s: float, wait: bool = True, skip: bool = False
    ) -> list[Done]:
        """The same for parts. With `skip` a part for which another verb has to come first is passed over."""
        if verb is Verb.START:
            with self.record.locked():
                self.refresh()
                found, todo = self._split(verb, parts, skip=skip)
                self._launch(todo)
            if wait:
                self.wait_ready([part for part in parts if part is not None])
            found |= {part: done(verb, part, ProcessState.RUNNING, self._pid(part)) for part in todo}
            return [found[part] for part in parts]
        if verb is Verb.RESTART:
            self.act_on(Verb.STOP, parts, grace_s=grace_s)
            started = self.act_on(Verb.START, parts, grace_s=grace_s, wait=wait)
            return [done(verb, each.broker, ProcessState.RUNNING, each.pid) for each in started]
        found, todo = self._split(verb, parts, skip=skip)
        if verb in (Verb.KILL, Verb.STOP):
            found |= self._end(verb, todo, grace_s if verb is Verb.STOP else 0)
        else:
            found |= {part: self._signal(verb, part) for part in todo}
        return [found[part] for part in parts]

    def wait_ready(self, brokers: Sequence[BrokerId]) -> None:
        """Wait until each has registered. Raises ClusterStartFailed with the end of its log when one does not."""
        deadline = time.monotonic() + self._start_timeout_s
        while waiting := [self.agents[broker] for broker in brokers if not self.agents[broker].is_ready()]:
            if time.monotonic() >= deadline:
                late = waiting[0]
                raise ClusterStartFailed(
                    f"Broker {late.id} was not ready within {self._start_timeout_s:g} s.",
                    hint=f"End of {late.log}:\n{late.process.last_lines()}",
                )
            time.sleep(_POLL_S)

    def launch(self, parts: Sequence[Part]) -> None:
        """Start these under the lab's lock, ZooKeeper first and until it serves; agents without waiting for them."""
        if None in parts and self._zookeeper is not None:
            self._zookeeper.launch()
            self.take(self.record.started(self._zookeeper.process.ref))
            self._zookeeper.wait_ready(self._start_timeout_s)
        for agent in (self.agents[part] for part in parts if part is not None):
            agent.launch(self.properties(agent))
            self.take(self.record.started(agent.process.ref))

    # Inside

    def _split(self, verb: Verb, parts: Sequence[Part], *, skip: bool) -> tuple[dict[Part, Done], list[Part]]:
        """What is not to be acted on, with the reason, and the rest."""
        found: dict[Part, Done] = {}
        todo: list[Part] = []
        for part in parts:
            state = self.state_of(part)
            why = idle(verb, state)
            if why is None:
                todo.append(part)
                continue
            words = f"{_capital(called(part))} {why.words}."
            if why.first is not None and not skip:
                first = self.advice(why.first, ZOOKEEPER if part is None else part)
                raise ClusterNotRunning(words, hint=f"{why.first.value.capitalize()} it with {first}.")
            found[part] = Done(_name(part), part, state.value, self._pid(part), False, words)
        return found, todo

    def _launch(self, parts: list[Part]) -> None:
        """Check what can be known before, then launch."""
        state = self.known
        refuse_taken_ports(self.directory, state, {_name(part) for part in parts})
        brokers = [part for part in parts if part is not None]
        for broker in brokers:
            self.properties(self.agents[broker])
        if brokers and None not in parts and state.zookeeper_port:
            now = self.state_of(None)
            if now is not ProcessState.RUNNING:
                first = Verb.START if now is ProcessState.DEAD else Verb.RESUME
                raise ClusterNotRunning(
                    f"ZooKeeper is {now.value}, so {called(brokers[0])} could not register.",
                    hint=f"{first.value.capitalize()} it first with {self.advice(first, ZOOKEEPER)}.",
                )
        self.launch(parts)

    def _signal(self, verb: Verb, part: Part) -> Done:
        process = self._process(part)
        if process is not None:
            process.pause() if verb is Verb.PAUSE else process.resume()
        after = ProcessState.PAUSED if verb is Verb.PAUSE else ProcessState.RUNNING
        return done(verb, part, after, self._pid(part))

    def _end(self, verb: Verb, parts: list[Part], grace_s: float) -> dict[Part, Done]:
        """Agents at once, of several that stop in order the ruler's last; then ZooKeeper, which they leave in order."""
        found: dict[Part, Done] = {}
        last = ruler(self.known) if grace_s > 0 and sum(part is not None for part in parts) > 1 else ""
        for group, grace in (
            ([part for part in parts if part is not None], grace_s),
            ([part for part in parts if part is None], min(grace_s, _ZOOKEEPER_GRACE_S)),
        ):
            pairs = [(part, process) for part in group if (process := self._process(part)) is not None]
            refs = tuple(process.ref for _, process in pairs)
            killed = processes.end(refs, grace_s=grace, last=last)
            for part, process in pairs:
                by_force = verb is Verb.STOP and process.ref in killed
                found[part] = done(verb, part, ProcessState.DEAD, process.pid, killed=by_force)
                self._forget(part)
            if refs:
                self.take(self.record.ended(refs, "kill" if verb is Verb.KILL else "stop"))
        for part in parts:
            if part not in found:  # it ended by itself just now
                found[part] = Done(_name(part), part, "dead", None, False, f"{_capital(called(part))} is dead already.")
        return found

    def _forget(self, part: Part) -> None:
        """Reap what was a child of this program."""
        if part is not None:
            self.agents[part].kill()
        elif self._zookeeper is not None:
            self._zookeeper.kill()

    def _process(self, part: Part) -> ManagedProcess | None:
        if part is not None:
            return self.agent(part).running
        server = self.own_zookeeper()
        return None if server is None or server.state is ProcessState.DEAD else server.process

    def _pid(self, part: Part) -> int | None:
        process = self._process(part)
        return None if process is None or process.state is ProcessState.DEAD else process.pid

    def _told(self, what: str, ask: Callable[[], BrokerId]) -> BrokerId:
        """What ZooKeeper says. Raises ClusterNotRunning where it cannot."""
        own = self.own_zookeeper()
        if own is not None and own.state is not ProcessState.RUNNING:
            raise ClusterNotRunning(
                f"ZooKeeper is {own.state.value}, so {what} cannot be told.", hint="Name the broker by its id."
            )
        return ask()


def _name(part: Part) -> str:
    return ZOOKEEPER if part is None else agent_name(part)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
