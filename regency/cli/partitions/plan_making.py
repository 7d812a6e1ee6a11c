"""Plans from what was asked for on the command line."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from regency.cli.asking.refusals import refusal
from regency.cli.context import INT32_MAX
from regency.cli.exits import CommandFailed, Exit
from regency.cli.partitions.reassignments import Replicas, Situation
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.planning.plan_file import PlanFile, fingerprints
from regency.planning.plans import Move, change_replication_factor, count_replicas, drain, rebalance

_SHOWN = 5


class Wish(msgspec.Struct, frozen=True):
    """What a plan is asked for: of which topics (none: all), over which brokers (none: all live ones)."""

    topics: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    drain: tuple[int, ...] = ()
    replication_factor: int | None = None

    def words(self, out: Path | None) -> list[str]:
        """The options that ask for it."""
        words: list[str] = []
        if self.topics:
            words += ["--topics", ",".join(self.topics)]
        if self.brokers:
            words += ["--brokers", ",".join(map(str, self.brokers))]
        if self.drain:
            words += ["--drain", ",".join(map(str, self.drain))]
        if self.replication_factor is not None:
            words += ["--replication-factor", str(self.replication_factor)]
        return [*words, "--out", str(out or "plan.json")]


def ids(_: click.Context, parameter: click.Parameter, value: str | tuple[str, ...] | None) -> list[int]:
    """Brokers of an option: `1,2,3`, perhaps several times."""
    given = value if isinstance(value, tuple) else (value,) if value is not None else ()
    words = [word.strip() for each in given for word in each.split(",")]
    for word in words:
        if not word.isdecimal() or int(word) > INT32_MAX:
            raise click.BadParameter(f"{word!r} is not the id of a broker.", param=parameter)
    return list(dict.fromkeys(map(int, words)))


def make_plan(situation: Situation, wish: Wish, *, command: str) -> PlanFile:
    """The plan. Raises CommandFailed and PlanImpossible."""
    scope = _scope(situation, wish)
    moves = _moves(situation, wish, scope)
    gaining = sorted({replica for move in moves for replica in move.adding})
    racks = situation.racks
    return PlanFile(tuple(moves), command, {broker: racks[broker] for broker in gaining}, fingerprints(scope))


def _moves(situation: Situation, wish: Wish, scope: dict[TopicPartition, Replicas]) -> list[Move]:
    live = _live(situation, wish)
    elsewhere = count_replicas({each: replicas for each, replicas in situation.assignment.items() if each not in scope})
    factor = wish.replication_factor
    if wish.drain:
        _check_drained(situation, wish)
        leaving = frozenset(map(BrokerId, wish.drain))
        return drain(scope, live, leaving, replication_factor=factor, elsewhere=elsewhere)
    if factor is not None and not wish.brokers:
        return change_replication_factor(scope, live, factor, elsewhere=elsewhere)
    return rebalance(scope, live, replication_factor=factor)


def _scope(situation: Situation, wish: Wish) -> dict[TopicPartition, Replicas]:
    for topic in wish.topics:
        if topic not in situation.topics:
            raise refusal(f"topic {topic}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    chosen = set(wish.topics)
    scope = {
        partition: replicas
        for partition, replicas in situation.assignment.items()
        if (not chosen or partition.topic in chosen) and replicas
    }
    going = [str(partition) for partition in situation.moving if partition in scope]
    if going:
        more = f" and {len(going) - _SHOWN} more" if len(going) > _SHOWN else ""
        raise CommandFailed(
            f"Partitions are being reassigned: {', '.join(going[:_SHOWN])}{more}.",
            hint="Wait until `regency partitions list` shows none, end it with `regency partitions cancel`, or name "
            "other topics.",
            status=Exit.IN_PROGRESS,
        )
    return scope


def _live(situation: Situation, wish: Wish) -> dict[BrokerId, str | None]:
    racks = situation.racks
    missing = [str(broker) for broker in wish.brokers if broker not in racks]
    if missing:
        listed = ", ".join(map(str, racks)) or "none"
        raise CommandFailed(f"Not live: broker {', '.join(missing)}. Live are {listed}.")
    return {broker: rack for broker, rack in racks.items() if not wish.brokers or broker in wish.brokers}


def _check_drained(situation: Situation, wish: Wish) -> None:
    """Raises CommandFailed for an unknown broker: more probably mistyped than empty."""
    known = {*situation.nodes, *count_replicas(situation.assignment)}
    for broker in wish.drain:
        if broker not in known:
            listed = ", ".join(map(str, sorted(known))) or "none"
            raise CommandFailed(f"There is no broker {broker}: it is not live and has no replicas. There are {listed}.")
