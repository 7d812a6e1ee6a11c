"""Which of the words somebody gave, --master or a --conf, Spark or Java does not start with. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

import click

_MASTER = re.compile(r"could not parse master|master must", re.IGNORECASE)
_HEAP = re.compile(r"(maximum|initial|object) heap|JNI error", re.IGNORECASE)
_MEMORY = "spark.driver.memory"
_EXAMPLES = ((re.compile(r"memory", re.IGNORECASE), "4g"), (re.compile(r"partitions|cores", re.IGNORECASE), "8"))


def blamed(said: str, master: str, settings: Mapping[str, str]) -> click.BadParameter | None:
    """A wrong use of --master or --conf, where what Spark or Java `said` is about one; None where it is not."""
    if _MASTER.search(said):
        return click.BadParameter(
            f"{master!r} is no master of Spark: {_ended(said)} Say for example local[2] or spark://host:7077.",
            param_hint="--master",
        )
    key = _named(said, settings)
    if key is None:
        return None
    example = next((f" Say for example {key}={value}." for kind, value in _EXAMPLES if kind.search(key)), "")
    return click.BadParameter(f"{key}={settings[key]}: {_ended(said)}{example}", param_hint="--conf")


def _named(said: str, settings: Mapping[str, str]) -> str | None:
    """The setting that is named, the longest name of several; else in other words, by its value, or by its effect."""
    named = [key for key in settings if key in said]
    named = named or [key for key in settings if key.removeprefix("spark.").replace(".", " ") in said.lower()]
    named = named or [
        key for key, value in settings.items() if value and re.search(rf"(?<![\w.]){re.escape(value)}$", said)
    ]
    if not named and _HEAP.search(said):
        named = [_MEMORY] if _MEMORY in settings else []
    return max(named, key=len, default=None)


def _ended(words: str) -> str:
    return words if words.endswith((".", "!", "?")) else f"{words}."
