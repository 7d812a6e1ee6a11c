"""What two connectors made of one case: whether they agree, and whether that is what the case's table says. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

_MOST_ROWS_TOLD = 2
_MOST_LETTERS = 300
_OURS = re.compile(r"\bregency\.[\w.]+: (.*)")
_INSIDE = re.compile(r"(?:executor driver\)|terminated with exception): (.*)")
"""Behind what Spark says of the task or of the stream."""
_CALLED = re.compile(r"^An error occurred while calling \S+\n: ")
_STACK = re.compile(r"\n\s+at ")


class Verdict(StrEnum):
    """Of the two outcomes of a case."""

    SAME = "same"
    EMPTY = "same, both empty"
    REFUSED = "both refuse"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class Refused:
    """An error, as Spark tells it."""

    message: str


@dataclass(frozen=True, slots=True)
class Got:
    """What came of a case that went through."""

    rows: Sequence[tuple[Any, ...]]
    """In an order of their own: sorted, or as they were written where that matters."""
    shape: str = ""
    """What else must agree: columns with their types, or the offsets of every batch."""
    tasks: int = 0
    """Of a batch read."""


Outcome: TypeAlias = Refused | Got


@dataclass(frozen=True, slots=True)
class Expected:
    """What a table says of a case: how many rows each connector gives, or words of its refusal.

    `why` must be there where they differ, where both are empty, and where they make other numbers of tasks.
    """

    kafka: int | str
    regency: int | str
    why: str = ""
    alike: bool = True
    """False where both give as many rows, and not the same."""
    tasks: tuple[int, int] | None = None
    """Of Kafka's and of ours, where they are not the same."""

    def __post_init__(self) -> None:
        if not self.why and (self.tasks or self.verdict in (Verdict.EMPTY, Verdict.DIFFERS)):
            raise ValueError(f"{self} does not say why")

    @property
    def verdict(self) -> Verdict:
        if isinstance(self.kafka, str) and isinstance(self.regency, str):
            return Verdict.REFUSED
        if self.kafka != self.regency or not self.alike:
            return Verdict.DIFFERS
        return Verdict.SAME if self.kafka else Verdict.EMPTY


def both(rows: int, why: str = "", *, tasks: tuple[int, int] | None = None) -> Expected:
    return Expected(rows, rows, why, tasks=tasks)


def verdict(kafka: Outcome, regency: Outcome) -> Verdict:
    """What the two outcomes are to each other."""
    if isinstance(kafka, Refused) and isinstance(regency, Refused):
        return Verdict.REFUSED
    if isinstance(kafka, Refused) or isinstance(regency, Refused) or differences(kafka, regency):
        return Verdict.DIFFERS
    return Verdict.SAME if kafka.rows else Verdict.EMPTY


def differences(kafka: Got, regency: Got) -> list[str]:
    """What differs between two results, in words; tasks are not looked at."""
    told = []
    if kafka.shape != regency.shape:
        told.append(f"kafka has {kafka.shape}, regency {regency.shape}")
    if list(kafka.rows) == list(regency.rows):
        return told
    first, second = Counter(map(repr, kafka.rows)), Counter(map(repr, regency.rows))
    for name, more in (("kafka", first - second), ("regency", second - first)):
        if more:
            examples = ", ".join(list(more)[:_MOST_ROWS_TOLD])
            told.append(f"{more.total()} rows only {name} has, such as {examples[:_MOST_LETTERS]}")
    return told or ["the same rows in another order"]


def mistakes(expected: Expected, kafka: Outcome, regency: Outcome) -> list[str]:
    """Where the outcomes are not what the table says; none is well."""
    found = []
    for name, want, got in (("kafka", expected.kafka, kafka), ("regency", expected.regency, regency)):
        if isinstance(want, str) and (isinstance(got, Got) or want not in got.message):
            found.append(f"{name} should refuse with {want!r}, and {told(got)}")
        elif isinstance(want, int) and (isinstance(got, Refused) or len(got.rows) != want):
            found.append(f"{name} should give {want:,} rows, and {told(got)}")
    is_so = verdict(kafka, regency)
    if is_so is not expected.verdict:
        found.append(f"the verdict should be {expected.verdict!s}, and is {is_so!s}")
        if isinstance(kafka, Got) and isinstance(regency, Got):
            found += differences(kafka, regency)
    if isinstance(kafka, Got) and isinstance(regency, Got):
        tasks = (kafka.tasks, regency.tasks)
        if tasks != (expected.tasks or (kafka.tasks, kafka.tasks)):
            found.append(f"tasks should be {expected.tasks or 'as many'}, and are {tasks}")
    return found


def told(outcome: Outcome) -> str:
    if isinstance(outcome, Refused):
        return f"refuses: {gist(outcome.message)}"
    return f"gives {len(outcome.rows):,} rows"


def gist(message: str) -> str:
    """The sentence of an error that says what is wrong, out of what Spark tells around it."""
    found = _OURS.findall(message)
    if found:
        return str(found[-1])[:_MOST_LETTERS]
    inside = _INSIDE.search(message)
    text = inside.group(1) if inside else _STACK.split(_CALLED.sub("", message))[0]
    return " ".join(text.split())[:_MOST_LETTERS]
