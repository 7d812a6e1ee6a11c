"""Where a dump goes: lines as Kafka's tool prints them, or one JSON object a line; damage also on stderr."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from regency.cli.context import say


class Fact(msgspec.Struct, frozen=True, tag_field="type", kw_only=True):
    """One thing that stands in a file. Subclasses name their type."""

    file: str


class Empty(Fact, frozen=True, tag="empty"):
    """A file without entries."""


class Passed(Fact, frozen=True, tag="sane"):
    """An index that a broker would not rebuild at its start."""


class Gap(Fact, frozen=True, tag="gap"):
    """Offsets that no batch has: compaction leaves such gaps, and nothing else should."""

    last_offset: int
    next_offset: int


class Damage(Fact, frozen=True, tag="damage"):
    """Something that must not be so. `kind` is a stable word, `position` a byte of the file or None."""

    kind: str
    position: int | None
    what: str


class Sink:
    """Takes what is found, file by file."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._gaps_of = ""
        self.damages = 0
        """How much damage was found."""
        self.damaged: dict[str, None] = {}
        """The files in which."""

    def begin(self, path: Path) -> None:
        """A file follows."""
        self.line(f"Dumping {path}")

    def line(self, words: str) -> None:
        """Words around the facts, which JSON has no use for."""
        if not self._json:
            click.echo(words)

    def fact(self, fact: Fact, line: str) -> None:
        """A fact, and how Kafka's tool would print it."""
        click.echo(msgspec.json.encode(fact) if self._json else line)

    def gap(self, path: Path, last_offset: int, next_offset: int) -> None:
        """Offsets between two batches that are not there."""
        if self._json:
            self.fact(Gap(file=str(path), last_offset=last_offset, next_offset=next_offset), "")
            return
        if self._gaps_of != str(path):
            self._gaps_of = str(path)
            say(f"Non-consecutive offsets in {path} (compaction leaves such gaps, and nothing else should)")
        say(f"  {last_offset} is followed by {next_offset}")

    def damage(self, path: Path, kind: str, what: str, position: int | None = None) -> None:
        """Something is wrong with the file."""
        self.damages += 1
        self.damaged[str(path)] = None
        if self._json:
            self.fact(Damage(file=str(path), kind=kind, position=position, what=what), "")
        else:
            where = "" if position is None else f"byte {position}: "
            say(f"Damage in {path}: {where}{what}")
