"""Types of settings: how the text of a value becomes a value, as Kafka reads it, and what is said when it does not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import ClassVar, Final, Protocol

import msgspec

from regency.model.errors import RegencyError

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_REPLICA = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")
_REAL = re.compile(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})")


class SettingsInvalid(RegencyError):
    """Settings cannot be used. `problems` are all there are, each naming where, key, value and what is allowed."""

    code: ClassVar[str] = "settings_invalid"

    def __init__(self, source: str, problems: Sequence[str], *, hint: str = "") -> None:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__("\n  ".join((f"{count} in {source}:", *problems)), hint=hint)
        self.source = source
        self.problems = tuple(problems)


class Kind(Protocol):
    """Type of a setting."""

    @property
    def type_name(self) -> str:
        """Kafka's name of the type: int, long, double, boolean, string, list."""
        ...

    @property
    def allowed(self) -> str:
        """The values there may be, in words; empty where every value of the type is allowed."""
        ...

    def parse(self, text: str) -> object:
        """The value of a trimmed text. Raises ValueError, whose message says what was expected."""
        ...


class Number(msgspec.Struct, frozen=True):
    """A whole number from `low` to `high`. `special` explains a value outside the usual, such as -1."""

    low: int = 0
    high: int = INT_MAX
    special: str = ""

    @property
    def type_name(self) -> str:
        """`int` or `long`."""
        return "int" if self.high <= INT_MAX else "long"

    @property
    def allowed(self) -> str:
        """The range."""
        open_ended = self.high in (INT_MAX, LONG_MAX)
        words = f"{self.low} or more" if open_ended else f"{self.low} to {self.high}"
        return f"{words} ({self.special})" if self.special else words

    def parse(self, text: str) -> int:
        """The number."""
        if not _INTEGER.fullmatch(text):
            raise ValueError(f"expected a whole number, {self.allowed}")
        value = int(text)
        if not self.low <= value <= self.high:
            limit = f" and at most {self.high}" if value > self.high else ""
            raise ValueError(f"expected {self.allowed}{limit}")
        return value


def long(low: int = 0, special: str = "") -> Number:
    """A whole number of 64 bits."""
    return Number(low, LONG_MAX, special)


class Real(msgspec.Struct, frozen=True):
    """A number from `low` to `high` that need not be whole."""

    low: float
    high: float

    @property
    def type_name(self) -> str:
        """`double`."""
        return "double"

    @property
    def allowed(self) -> str:
        """The range."""
        return f"{self.low:g} to {self.high:g}"

    def parse(self, text: str) -> float:
        """The number."""
        if not _REAL.fullmatch(text) or not self.low <= float(text) <= self.high:
            raise ValueError(f"expected a number of {self.allowed}")
        return float(text)


class Boolean(msgspec.Struct, frozen=True):
    """true or false, in any case."""

    @property
    def type_name(self) -> str:
        """`boolean`."""
        return "boolean"

    @property
    def allowed(self) -> str:
        """Both values."""
        return "true or false"

    def parse(self, text: str) -> bool:
        """The truth."""
        if text.lower() not in ("true", "false"):
            raise ValueError("expected true or false")
        return text.lower() == "true"


class Text(msgspec.Struct, frozen=True):
    """Any text, or one of `options`."""

    options: tuple[str, ...] = ()
    may_be_empty: bool = False

    @property
    def type_name(self) -> str:
        """`string`."""
        return "string"

    @property
    def allowed(self) -> str:
        """The options."""
        return f"one of {', '.join(self.options)}" if self.options else ""

    def parse(self, text: str) -> str:
        """The text."""
        if self.options and text not in self.options:
            raise ValueError(f"expected {self.allowed}{nearest(text, self.options)}")
        if not text and not self.may_be_empty:
            raise ValueError("expected a value, it is empty")
        return text


class ListOf(msgspec.Struct, frozen=True):
    """Texts separated by commas, none twice; each one of `options` where there are any."""

    options: tuple[str, ...] = ()

    @property
    def type_name(self) -> str:
        """`list`."""
        return "list"

    @property
    def allowed(self) -> str:
        """The options."""
        return f"one or more of {', '.join(self.options)}" if self.options else ""

    def parse(self, text: str) -> tuple[str, ...]:
        """The elements, trimmed, in their order."""
        elements = tuple(element.strip() for element in text.split(","))
        if not all(elements):
            raise ValueError("expected values separated by commas, one is empty")
        for element in elements:
            if self.options and element not in self.options:
                raise ValueError(f"expected {self.allowed}{nearest(element, self.options)}")
            if elements.count(element) > 1:
                raise ValueError(f"{element} stands there twice")
        return elements


class ReplicaList(msgspec.Struct, frozen=True):
    """Replicas of a topic, `partition:broker` separated by commas, or `*` for all of them; may be empty.

    A replica may stand there twice: tools put such lists together.
    """

    @property
    def type_name(self) -> str:
        """`list`."""
        return "list"

    @property
    def allowed(self) -> str:
        """The form of an element."""
        return "replicas as partition:broker, separated by commas, or * for all of them"

    def parse(self, text: str) -> tuple[str, ...]:
        """The elements, trimmed, in their order."""
        if not text:
            return ()
        elements = tuple(element.strip() for element in text.split(","))
        if elements == ("*",):
            return elements
        wrong = next((element for element in elements if not _REPLICA.fullmatch(element)), None)
        if wrong is not None:
            raise ValueError(f"expected {self.allowed}, not {wrong[:40]!r}")
        return elements


def format_value(value: object) -> str:
    """The text a value is written as in a settings file; empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(str(element) for element in value)
    return str(value)


def nearest(word: str, words: Sequence[str]) -> str:
    """`; did you mean X?` for the most similar of `words`, or nothing."""
    matches = get_close_matches(word[:100], words, n=1, cutoff=0.6)
    return f"; did you mean {matches[0]}?" if matches else ""


_SHOWN = 200
SECRETS = frozenset({"regency.zookeeper.digest.auth"})
"""Keys whose values are never shown."""


class Problems:
    """Values being read, and what was wrong with them. `origins` says where keys stand, such as `line 12`."""

    def __init__(self, properties: Mapping[str, str], origins: Mapping[str, str]) -> None:
        self._properties = properties
        self._origins = origins
        self.found: list[str] = []

    def add(self, key: str, why: str) -> None:
        """Note a problem of a key: where it stands, and its value unless that is a secret."""
        origin = self._origins.get(key)
        place = f"{origin}: " if origin else ""
        value = "…" if key in SECRETS else self._properties.get(key, " (the default)")[:_SHOWN]
        self.found.append(f"{place}{key}={value}: {why}")

    def add_missing(self, key: str, why: str) -> None:
        """Note that a key is not there."""
        self.found.append(f"{key} is missing: {why}")

    def read(self, key: str, kind: Kind) -> object | None:
        """The value of a key that is there; None, and a problem, where it is not one of `kind`."""
        try:
            return kind.parse(self._properties[key].strip())
        except ValueError as error:
            self.add(key, str(error))
            return None
