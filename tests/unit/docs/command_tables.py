"""The tables of docs/reference/commands.md, made from the code. Run as a program it writes them:

.venv/bin/python tests/unit/docs/command_tables.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec

from regency.cli.exits import MEANINGS, Exit
from regency.cli.schemas import LINES, OUTPUTS, output_type

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "commands.md"
FACTS = {"log dump": "`type`, `file`, and what that type has"}
"""Of documents that are one of several types."""


def exits() -> Iterator[str]:
    """Every exit status."""
    yield "| status | name | what it says |"
    yield "|---|---|---|"
    for status in Exit:
        yield f"| {int(status)} | {status.name.lower().replace('_', ' ')} | {MEANINGS[status]} |"


def outputs() -> Iterator[str]:
    """The fields of every document; of a list, of its elements."""
    yield "| command | `-o json` has |"
    yield "|---|---|"
    rows: dict[str, list[str]] = {}
    for command, where in OUTPUTS.items():
        found = output_type(command)
        of = get_args(found)[0] if where.startswith("[]") else found
        names = FACTS.get(command) or ", ".join(f"`{field.encode_name}`" for field in msgspec.structs.fields(of))
        many = "a list, each with " if where.startswith("[]") else "a line each: " if command in LINES else ""
        rows.setdefault(many + names, []).append(f"`{command}`")
    yield from (f"| {', '.join(commands)} | {names} |" for names, commands in rows.items())


def rendered(page: str) -> str:
    """The page with its tables as they are in the code."""
    for made in (exits, outputs):
        table = "\n".join(made())
        block = rf"(<!-- made: {made.__name__} -->\n).*?(\n<!-- end -->)"
        page = re.sub(block, lambda found, table=table: found[1] + table + found[2], page, flags=re.DOTALL)
    return page


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")
