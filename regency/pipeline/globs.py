"""Globs on this machine: Hadoop says what a pattern means, and Python lists the directories, where nothing is left out.

Hadoop's own listing has neither links that lead nowhere nor names that Java cannot decode, and says nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WILD = frozenset("[{*?")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def matching(session: SparkSession, pattern: str) -> list[Path]:
    """What a glob stands for, by name; a relative one begins in the directory of this process.

    Raises OSError for a directory that cannot be listed, and what Hadoop raises for a pattern that is none.
    """
    jvm: Any = session._jvm  # noqa: SLF001  (there is no public way to Hadoop's files from Python)
    hadoop = jvm.org.apache.hadoop.fs
    found: set[Path] = set()
    for flat in hadoop.GlobExpander.expand(pattern):  # several, where braces have a slash in them
        here = [Path("/") if flat.startswith("/") else Path.cwd()]
        for part in filter(None, flat.split("/")):
            names = re.compile(hadoop.GlobPattern.compile(part).pattern(), re.DOTALL) if _is_wild(part) else None
            here = [each for directory in here for each in _in(directory, part, names)]
        found.update(here)
    return sorted(found)


def _is_wild(part: str) -> bool:
    return not _WILD.isdisjoint(_ESCAPED.sub("", part))


def _in(directory: Path, part: str, names: re.Pattern[str] | None) -> Iterator[Path]:
    if names is None:
        one = directory / _ESCAPED.sub(r"\1", part)
        if os.path.lexists(one):
            yield one
    elif directory.is_dir():
        yield from (each for each in directory.iterdir() if names.fullmatch(each.name))
