"""A plan as a file: Kafka's reassignment JSON with more fields, so that Kafka's own tool can read it too. Pure.

`hash` covers everything else in the file: an edited plan is known from the one that was looked at. `computed_from`
has, for each topic the plan looked at, a hash of its assignment: a plan whose topics have changed since is known too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Final, TypeVar

import msgspec

from regency.model.errors import RegencyError
from regency.model.ids import BrokerId, TopicPartition
from regency.planning.plans import Move, Replicas

VERSION: Final = 1
_T = TypeVar("_T")
_Id = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class PlanRefused(RegencyError):
    """The file is none, or not as it was written."""

    code: ClassVar[str] = "plan_refused"


class PlanEdited(PlanRefused):
    """The file is a plan, and was changed after it was made."""

    code: ClassVar[str] = "plan_edited"


class PlanFile(msgspec.Struct, frozen=True):
    """A plan. Without `computed_from` it is a file of Kafka's, which says only what shall be.

    `command` makes it again. `brokers` are those that get replicas, with their racks.
    """

    moves: tuple[Move, ...]
    command: str = ""
    brokers: Mapping[BrokerId, str | None] = {}
    computed_from: Mapping[str, str] | None = None

    @property
    def is_kafkas(self) -> bool:
        """Whether nothing is known of what it was computed from."""
        return self.computed_from is None


class _MoveJson(msgspec.Struct, omit_defaults=True):
    topic: str
    partition: _Id
    replicas: tuple[_Id, ...]
    before: tuple[_Id, ...] = ()
    why: str = ""
    log_dirs: tuple[str, ...] = ()


class _PlanJson(msgspec.Struct, omit_defaults=True, kw_only=True):
    partitions: list[_MoveJson]
    version: int = msgspec.field(default_factory=lambda: VERSION)
    command: str = ""
    brokers: dict[str, str | None] = {}
    computed_from: dict[str, str] | None = None
    hash: str = ""


class _TopicJson(msgspec.Struct):
    topic: str


class _TopicsJson(msgspec.Struct):
    topics: list[_TopicJson]
    version: int = 1


_plans = msgspec.json.Decoder(_PlanJson)
_topics = msgspec.json.Decoder(_TopicsJson)


def fingerprints(assignment: Mapping[TopicPartition, Replicas]) -> dict[str, str]:
    """A hash of the assignment of each topic, by name."""
    by_topic: dict[str, list[tuple[int, Replicas]]] = {}
    for partition in sorted(assignment):
        by_topic.setdefault(partition.topic, []).append((partition.partition, assignment[partition]))
    return {topic: _digest(msgspec.json.encode(each))[:16] for topic, each in by_topic.items()}


def encode_plan(plan: PlanFile) -> bytes:
    """The file; the same plan is the same bytes."""
    content = _PlanJson(
        partitions=[
            _MoveJson(move.partition.topic, move.partition.partition, move.after, move.before, move.why)
            for move in plan.moves
        ],
        command=plan.command,
        brokers={str(broker): plan.brokers[broker] for broker in sorted(plan.brokers)},
        computed_from=None if plan.computed_from is None else dict(sorted(plan.computed_from.items())),
    )
    content.hash = _hash(content)
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def encode_kafkas(replicas: Iterable[tuple[TopicPartition, Replicas]]) -> bytes:
    """Kafka's reassignment JSON."""
    partitions = [{"topic": each.topic, "partition": each.partition, "replicas": all_} for each, all_ in replicas]
    return msgspec.json.encode({"version": 1, "partitions": partitions}) + b"\n"


def decode_plan(name: str, data: bytes) -> PlanFile:
    """Read a plan, or a file of Kafka's. Raises PlanRefused."""
    content = _read(_plans, name, data, '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}')
    if content.version != VERSION:
        raise PlanRefused(f"{name} has version {content.version}; {VERSION} is what is understood.")
    is_kafkas = content.computed_from is None and not content.hash
    if not is_kafkas and content.hash != _hash(content):
        raise PlanEdited(
            f"{name} was edited after it was made.",
            hint="Nothing was done. Make it again"
            + (f": {content.command}" if content.command else ".")
            + ' To execute your own choice, leave only "version" and "partitions" with "topic", "partition" and '
            '"replicas" in it, as in Kafka\'s files.',
        )
    if is_kafkas and not content.partitions:
        raise PlanRefused(f"{name} names no partitions: there is nothing to do.")
    moves: dict[TopicPartition, Move] = {}
    for each in content.partitions:
        partition = TopicPartition(each.topic, each.partition)
        _check(name, partition, each, known=partition in moves)
        moves[partition] = Move(
            partition, tuple(map(BrokerId, each.before)), tuple(map(BrokerId, each.replicas)), each.why
        )
    brokers = {BrokerId(int(broker)): rack for broker, rack in content.brokers.items()}
    return PlanFile(tuple(moves.values()), content.command, brokers, None if is_kafkas else content.computed_from)


def decode_topics(name: str, data: bytes) -> list[str]:
    """Read Kafka's file of topics to move. Raises PlanRefused."""
    content = _read(_topics, name, data, '{"version":1,"topics":[{"topic":"t"}]}')
    if not content.topics:
        raise PlanRefused(f"{name} names no topics.")
    return list(dict.fromkeys(each.topic for each in content.topics))


def reverse(plan: PlanFile, now: Mapping[TopicPartition, Replicas], racks: Mapping[BrokerId, str | None]) -> PlanFile:
    """The plan that leads back. `now` has the topics of the plan as they are before it, `racks` all brokers."""
    after = dict(now)
    after.update((move.partition, move.after) for move in plan.moves)
    back = tuple(Move(move.partition, move.after, move.before, "as it was before") for move in plan.moves)
    gaining = sorted({replica for move in back for replica in move.adding})
    return PlanFile(back, "", {broker: racks.get(broker) for broker in gaining}, fingerprints(after))


def _check(name: str, partition: TopicPartition, move: _MoveJson, *, known: bool) -> None:
    problem = ""
    if known:
        problem = "it stands twice"
    elif not move.replicas:
        problem = "no replicas are given"
    elif len(set(move.replicas)) != len(move.replicas):
        problem = f"a broker stands twice in {list(move.replicas)}"
    elif any(directory != "any" for directory in move.log_dirs):
        problem = 'log directories cannot be chosen; "any" is what works'
    if problem:
        raise PlanRefused(f"{name}: {partition}: {problem}.")


def _read(decoder: msgspec.json.Decoder[_T], name: str, data: bytes, example: str) -> _T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error) if data else "empty"
        raise PlanRefused(f"{name}: {reason}.", hint=f"Expected: {example}") from error


def _hash(content: _PlanJson) -> str:
    """Of everything but the hash, whatever the file looks like."""
    return "sha256:" + _digest(msgspec.json.encode(msgspec.structs.replace(content, hash="")))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
