"""The verbs of a lab, as rules: what each does to a process that runs, is paused or is dead, and in which words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from enum import Enum
from typing import TypeAlias

import msgspec

from regency.cluster.errors import ClusterError, UnknownBroker
from regency.cluster.process.processes import ProcessState
from regency.cluster.state import ZOOKEEPER, agent_name
from regency.model.ids import BrokerId, TopicPartition
from regency.model.words import listed

Target: TypeAlias = int | str
"""What a verb is for: a broker's id, `controller` (the broker whose controller rules), a partition (the broker that
leads it), `zookeeper`, or `all`."""
CONTROLLER, ALL = "controller", "all"


class Verb(Enum):
    """SIGKILL, an orderly stop, SIGSTOP, SIGCONT, a start, an orderly stop and a start."""

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    RESUME = "resume"
    START = "start"
    RESTART = "restart"


class Done(msgspec.Struct, frozen=True, rename={"name": "process"}):
    """What a verb did to one process. `broker` is None for ZooKeeper; `changed` is False where nothing was to be done.

    `state` and `pid` are those after it; `killed`: it did not stop in time, and got SIGKILL.
    """

    name: str
    broker: BrokerId | None
    state: str
    pid: int | None
    changed: bool
    words: str
    killed: bool = False


class Idle(msgspec.Struct, frozen=True):
    """Why a verb does nothing to a process: it is so already, or, with `first`, another verb has to come before."""

    words: str
    first: Verb | None = None


_IDLE = {
    (Verb.KILL, ProcessState.DEAD): Idle("is dead already"),
    (Verb.STOP, ProcessState.DEAD): Idle("does not run, so there is nothing to stop"),
    (Verb.PAUSE, ProcessState.PAUSED): Idle("is paused already"),
    (Verb.PAUSE, ProcessState.DEAD): Idle("is not running", Verb.START),
    (Verb.RESUME, ProcessState.RUNNING): Idle("runs already"),
    (Verb.RESUME, ProcessState.DEAD): Idle("is not running", Verb.START),
    (Verb.START, ProcessState.RUNNING): Idle("runs already"),
    (Verb.START, ProcessState.PAUSED): Idle("is paused", Verb.RESUME),
}
_DONE = {
    Verb.KILL: "Killed",
    Verb.STOP: "Stopped",
    Verb.PAUSE: "Paused",
    Verb.RESUME: "Resumed",
    Verb.START: "Started",
    Verb.RESTART: "Restarted",
}


def idle(verb: Verb, state: ProcessState) -> Idle | None:
    """Why the verb does nothing to a process in this state; None where it acts."""
    return _IDLE.get((verb, state))


def done(verb: Verb, broker: BrokerId | None, state: ProcessState, pid: int | None, *, killed: bool = False) -> Done:
    """What was done, in words such as "Paused broker 2 (pid 4711)."."""
    by_force = ", with SIGKILL: it did not stop in time" if killed else ""
    at = f" (pid {pid})" if pid is not None else ""
    name = ZOOKEEPER if broker is None else agent_name(broker)
    return Done(name, broker, state.value, pid, True, f"{_DONE[verb]} {called(broker)}{at}{by_force}.", killed)


def called(broker: BrokerId | None) -> str:
    """`broker 2`, or ZooKeeper."""
    return "ZooKeeper" if broker is None else f"broker {broker}"


def as_partition(word: Target) -> TopicPartition | None:
    """`flights-3`; None where the word cannot be a partition."""
    topic, dash, number = word.rpartition("-") if isinstance(word, str) else ("", "", "")
    return TopicPartition(topic, int(number)) if topic and dash and re.fullmatch(r"[0-9]{1,9}", number) else None


def meant(word: str, brokers: Sequence[BrokerId]) -> str:
    """The target that a word comes near: 2 for `agent-2`, as processes are called, or `broker 2`; empty for none."""
    number = re.fullmatch(r"(?:broker|agent)[ -]?([0-9]{1,9})", word)
    if number is not None and int(number[1]) in brokers:
        return number[1]
    return next(iter(get_close_matches(word[:100].casefold(), (CONTROLLER, ZOOKEEPER, ALL), 1)), "")


def parse_targets(
    words: Sequence[Target], brokers: Sequence[BrokerId], *, own_zookeeper: bool, partitions: bool = True
) -> list[Target]:
    """Broker ids as numbers, partitions and other words as they are; `all` stands alone. Each once, in their order.

    Raises UnknownBroker, and ClusterError for another word, for none at all, and for a ZooKeeper that is another's;
    for a partition, too, where `partitions` are no targets.
    """
    also = ", zookeeper, all, or flights-0: who leads it." if partitions else ", zookeeper or all."
    parsed: list[Target] = []
    for word in words:
        target = int(word) if isinstance(word, str) and word.isascii() and word.isdecimal() else word
        if isinstance(target, bool) or not isinstance(target, int | str):
            raise UnknownBroker(f"There is no broker {target!r}.", hint=f"There are {listed(brokers)}.")
        if isinstance(target, int) and target not in brokers:
            raise UnknownBroker(f"There is no broker {target}.", hint=f"There are {listed(brokers)}.")
        is_partition = partitions and as_partition(target) is not None
        if isinstance(target, str) and target not in (CONTROLLER, ZOOKEEPER, ALL) and not is_partition:
            near = meant(target, brokers)
            raise ClusterError(
                f"{target!r} is no part of a lab.",
                hint=f"{f'Did you mean {near}? ' if near else ''}Name brokers ({listed(brokers)}), controller{also}",
            )
        if target == ZOOKEEPER and not own_zookeeper:
            raise ClusterError("The cluster uses a ZooKeeper that is not its own.", hint="Start or stop it yourself.")
        if target not in parsed:
            parsed.append(target)
    if not parsed:
        raise ClusterError("Nothing is named.", hint="Name a broker's id, controller, zookeeper or all.")
    if ALL in parsed:
        return [*([ZOOKEEPER] if own_zookeeper else []), *brokers]
    return parsed
