"""Commands in the fenced console blocks of a document, with the state they are for and the exit status they end with.

Before every such block stands a comment: `<!-- run: SCENARIO -->`, or `<!-- not run: REASON -->`. A line that begins
with `$ ` is a command, others are what it prints; `# exit N` at its end is the status it ends with, else 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"(?P<before>[^\n]*)\n```console\n(?P<lines>.*?)^```$", re.DOTALL | re.MULTILINE)
_MARK = re.compile(r"<!-- (?P<kind>run|not run): (?P<what>.+) -->")
_STATUS = re.compile(r"\s+# exit (?P<status>\d+)$")


class BlocksMalformed(Exception):
    """A block does not say how it is run, or is none."""


@dataclass(frozen=True)
class Command:
    """One command; `scenario` is None where it is not run, and `why` says why."""

    where: str
    text: str
    status: int
    scenario: str | None
    why: str = ""


def commands_of(page: Path) -> list[list[Command]]:
    """The commands of every console block, in order. Raises BlocksMalformed."""
    text = page.read_text("utf-8")
    blocks = []
    for block in _BLOCK.finditer(text):
        line = text.count("\n", 0, block.start("lines")) + 1
        mark = _MARK.fullmatch(block["before"].strip())
        if mark is None:
            raise BlocksMalformed(
                f"{page.name}:{line}: say <!-- run: SCENARIO --> or <!-- not run: REASON --> before it"
            )
        scenario = mark["what"] if mark["kind"] == "run" else None
        commands = []
        for number, each in enumerate(block["lines"].splitlines()):
            if each.startswith("$ "):
                status = _STATUS.search(each)
                words = each[2:] if status is None else each[2 : status.start()]
                expected = 0 if status is None else int(status["status"])
                where = f"{page.name}:{line + number}"
                commands.append(Command(where, words, expected, scenario, "" if scenario else mark["what"]))
        if not commands:
            raise BlocksMalformed(f"{page.name}:{line}: a console block without a command")
        blocks.append(commands)
    if text.count("```console") != len(blocks):
        raise BlocksMalformed(f"{page.name}: a console block that does not end, or that nothing stands before")
    return blocks
