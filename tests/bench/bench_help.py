"""How long `--help` of each command takes, groups too, a process each: `./dev bench help --json FILE`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import click
from reporting import Figures, parser, repeat_and_report, run

from regency.cli.main import cli


def main() -> None:
    arguments = parser(__doc__, runs=3).parse_args()
    commands = list(paths(cli, []))
    repeat_and_report(arguments, lambda: measure(commands), {"commands": len(commands)})


def paths(command: click.Command, path: list[str]) -> Iterator[list[str]]:
    """The command's words, and those of all below it."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from paths(found, [*path, name])


def measure(commands: list[list[str]]) -> Figures:
    """One help after another, each from its process's start to its end."""
    taken = []
    for command in commands:
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "regency", *command, "--help"], stdout=subprocess.DEVNULL, check=True)
        taken.append(time.monotonic() - began)
    return {"median_seconds": round(statistics.median(taken), 3), "slowest_seconds": round(max(taken), 3)}


if __name__ == "__main__":
    sys.exit(run(main))
