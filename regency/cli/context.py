"""What all commands share: the options that say which cluster and how to print, words on stderr, data on stdout."""

from __future__ import annotations

import base64
import importlib
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from regency.cli.exits import CommandFailed, Exit
from regency.cluster.state import DEFAULT_DIRECTORY, command_for, read_state

BOOTSTRAP_VARIABLE = "REGENCY_BOOTSTRAP_SERVERS"

INT32_MAX = 2**31 - 1
"""The largest partition or broker id that Kafka's protocol can carry."""
INT64_MAX = 2**63 - 1
"""The largest offset."""


class Count(click.IntRange):
    """A whole number, called so where a value is none."""

    name = "whole number"


ID = Count(0, INT32_MAX)
"""A partition."""
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
DIRECTORY = click.Path(file_okay=False, path_type=Path)

F = TypeVar("F", bound=Callable[..., object])


class Seconds(click.FloatRange):
    """A time to wait: from `least` to what fits a signed 32-bit number of milliseconds, as Kafka's clients take."""

    name = "number of seconds"

    def __init__(self, least: float) -> None:
        super().__init__(min=least, max=INT32_MAX // 1000)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002
        """What help shows in the place of the value (click before 8.2 gives no context)."""
        return "SECONDS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Fails for `nan`, which is within every range."""
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value} is not a number of seconds.", param, ctx)
        return seconds


class TopicName(click.ParamType[str]):
    """A topic's name. An empty one, which an unset variable of a script gives, names nothing, and never everything."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name."""
        if not value:
            self.fail("a topic's name is not empty.", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Topics of the live cluster."""
        return completed("topics")(ctx, param, incomplete)


class GroupName(click.ParamType[str]):
    """A consumer group's name, which may be any text but an empty one."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name."""
        if not value:
            self.fail("a group's name is not empty.", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Groups of the live cluster."""
        return completed("groups")(ctx, param, incomplete)


class BrokerNumber(click.IntRange):
    """A broker's id."""

    name = "id of a broker"

    def __init__(self) -> None:
        super().__init__(0, INT32_MAX)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Brokers of the live cluster."""
        return completed("brokers")(ctx, param, incomplete)


def completed(what: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """What a shell offers there; see `regency.cli.completing`, which only a shell that asks loads."""

    def offered(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        offers = importlib.import_module("regency.cli.completing")
        found: list[CompletionItem] = getattr(offers, what)(ctx, param, incomplete)
        return found

    return offered


BROKER_ID = BrokerNumber()
TOPIC_NAME = TopicName()
GROUP_NAME = GroupName()


@dataclass
class CliContext:
    """Choices that hold for one call of the command line, wherever on it they were made."""

    output: str = "table"
    bootstrap: str | None = None
    directory: Path = DEFAULT_DIRECTORY

    @property
    def json(self) -> bool:
        """Whether data is wanted as JSON."""
        return self.output == "json"

    def refuse_without_lab(self, instead: str) -> None:
        """Raises CommandFailed where no cluster is in the directory and another was named: `instead` tells of that."""
        if self.bootstrap and read_state(self.directory) is None:
            raise CommandFailed(
                f"There is no cluster in {self.directory}, and this command looks at no other.",
                hint=f"Of the cluster at {self.bootstrap} {instead}.",
            )

    def bootstrap_servers(self) -> str:
        """Where Kafka clients connect: as told, else the cluster that runs in the directory. Raises CommandFailed."""
        if self.bootstrap:
            return self.bootstrap
        state = read_state(self.directory)
        if state is None or not state.alive(self.directory):
            raise CommandFailed(
                f"No cluster runs in {self.directory}, and no --bootstrap-server was given.",
                hint=f"Start one with {command_for(self.directory, 'up --detach')}, "
                "or name a broker, for example localhost:9092.",
            )
        return state.bootstrap_servers


def current() -> CliContext:
    """The choices of this call."""
    found = click.get_current_context().find_root().ensure_object(CliContext)
    assert isinstance(found, CliContext)
    return found


def output_option(command: F) -> F:
    """Adds `-o`."""
    option = click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        callback=_choose("output"),
        expose_value=False,
        help="How to print data.  [default: table]",
    )
    return option(command)


def directory_option(command: F) -> F:
    """Adds `--dir`."""
    option = click.option(
        "--dir",
        type=DIRECTORY,
        callback=_choose("directory"),
        expose_value=False,
        help=f"Directory of the cluster.  [default: {DEFAULT_DIRECTORY}]",
    )
    return option(command)


def cluster_options(command: F) -> F:
    """Adds `-o`, `--dir` and `--bootstrap-server`."""
    option = click.option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        envvar=BOOTSTRAP_VARIABLE,
        callback=_choose("bootstrap"),
        expose_value=False,
        help=f"Brokers to ask first.  [env: {BOOTSTRAP_VARIABLE}; default: the cluster in --dir]",
    )
    return output_option(directory_option(option(command)))


def say(words: str) -> None:
    """One line for people, on stderr."""
    click.echo(words, err=True)


def conclude(words: str) -> None:
    """A verdict in a line on stdout, beside its data; with -o json on stderr, for the document says it too."""
    click.echo(words, err=current().json)


def show(rows: Sequence[msgspec.Struct], columns: Sequence[str]) -> None:
    """Print facts as a JSON array of objects, or as a table of `columns`."""
    if current().json:
        print_json(rows)
        return
    print_rows(rows, columns)


def print_rows(rows: Sequence[msgspec.Struct], columns: Sequence[str]) -> None:
    """Facts as a table of `columns`: fields, upper-cased as headings."""
    table = [[column.upper().replace("_", "-") for column in columns]]
    print_table([*table, *([getattr(row, column) for column in columns] for row in rows)])


def print_json(value: object) -> None:
    """One JSON document on stdout, indented."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(rows: Sequence[Sequence[object]]) -> None:
    """Columns, two spaces apart, as wide as they have to be. A dash is None or an empty list.

    On a terminal that is narrower, the widest cells go on in the next line, behind a space or a comma.
    """
    table = [[_cell(value) for value in row] for row in rows]
    for line in tabulated(table, shutil.get_terminal_size().columns if sys.stdout.isatty() else None):
        click.echo(line)


def tabulated(table: Sequence[Sequence[str]], room: int | None) -> Iterator[str]:
    """The lines of a table in `room` columns of a terminal, if that can be without parting words; None: any number."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    if room is not None:
        least = [
            max((len(each.rstrip()) for cell in column for each in _pieces(cell)), default=0)
            for column in zip(*table, strict=True)
        ]
        between = 2 * (len(widths) - 1)
        while sum(least) + between <= room < sum(widths) + between:
            widest = max(range(len(widths)), key=lambda place: (widths[place] > least[place], widths[place]))
            widths[widest] -= 1
    for row in table:
        parted = [_parted(cell, width) for cell, width in zip(row, widths, strict=True)]
        for cells in zip_longest(*parted, fillvalue=""):
            yield "  ".join(map(str.ljust, cells, widths)).rstrip()


def confirm(loses: str, question: str, *, yes: bool) -> None:
    """Ask, unless `yes` was said. Raises CommandFailed with REFUSED without a yes, and where nobody can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandFailed(f"{loses} cannot be undone.", hint="Say --yes if it is meant.", status=Exit.REFUSED)
    if not click.confirm(question, err=True):
        raise CommandFailed("Nothing was deleted.", status=Exit.REFUSED)


def stderr_is_terminal() -> bool:
    """Whether someone looks at progress."""
    return sys.stderr.isatty()


def parse_pairs(pairs: Sequence[str], option: str) -> dict[str, str]:
    """`KEY=VALUE` words of a repeated option. Raises a usage error naming the word, also for a key said twice."""
    parsed: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE.", param_hint=option)
        if key in parsed:
            raise click.BadParameter(f"{key} is said twice.", param_hint=option)
        parsed[key] = value
    return parsed


def _choose(field: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def remember(context: click.Context, _: click.Parameter, value: object) -> None:
        if value is not None:
            setattr(context.find_root().ensure_object(CliContext), field, value)

    return remember


def _pieces(cell: str) -> list[str]:
    """What stays in one line: words with the spaces behind them, members of lists with their commas, parts of heads."""
    return re.findall(r"[^ ,]*,|[A-Z]+-(?=[A-Z])|[^ ,]+ *| +", cell)


def _parted(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    lines = [""]
    for piece in _pieces(cell):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value) or "-"
    return str(value)


class Lazy(NamedTuple):
    """A command: `module:attribute`, and what the list of commands says of it."""

    where: str
    help: str


class LazyGroup(click.Group):
    """A group over a table of `Lazy` commands, listed in the table's order."""

    def __init__(
        self, *arguments: Any, lazy: Mapping[str, Lazy], elsewhere: Mapping[str, str] | None = None, **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        self._lazy = lazy
        self._elsewhere = elsewhere or {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """Names of the subcommands, in the order of help."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of that name, or None."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name].where.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand that is meant. For one that is not there, the error has the nearest names."""
        name = args[0]
        if name in self._lazy or ctx.resilient_parsing or name.startswith("-"):
            return super().resolve_command(ctx, args)
        near = get_close_matches(name[:100], self._lazy, n=2, cutoff=0.6)
        near = [self._elsewhere[name]] if name in self._elsewhere else near
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise click.UsageError(f"No such command {name!r}.{hint}", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the subcommands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in self._lazy.items()])


UTF8, BASE64 = "utf-8", "base64"


def encoding_of(parts: Iterable[bytes | None]) -> str:
    """`utf-8` where all of these are, else `base64`."""
    try:
        for part in parts:
            (part or b"").decode()
    except UnicodeDecodeError:
        return BASE64
    return UTF8


def spelled(data: bytes | None, encoding: str) -> str | None:
    """Bytes as text in that encoding."""
    if data is None:
        return None
    return data.decode() if encoding == UTF8 else base64.b64encode(data).decode("ascii")
