"""docs/reference/commands.md says what the code does: exit statuses, fields of JSON, and the words of options."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner
from msgspec import inspect

from regency.cli.main import cli
from regency.cli.schemas import OUTPUTS, output_type
from regency.history.records import Decision
from regency.runtime.daemon_options import Renamed

MAKER = Path(__file__).with_name("command_tables.py")
OF_OTHERS = ("pipeline", "log dump", "demo")
"""Which follow Spark, files, or nothing at all in their options."""
LOOKING = ("cluster health", "verify replicas")
"""Whose --wait is a wish, for they change nothing."""


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("command_tables", MAKER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def leaves(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command that is no group, by its words."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from leaves(found, (*path, name))
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield " ".join(path), command


def shown(command: click.Command) -> dict[str, click.Option]:
    """Options as help shows them, by name."""
    options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    return {
        name: each for each in options for name in each.opts if not (isinstance(each, Renamed) and name in each.old)
    }


ALL = dict(leaves())
LEAVES = {path: command for path, command in ALL.items() if not path.startswith(OF_OTHERS)}


def test_the_tables_are_current(tables: ModuleType) -> None:
    page = tables.PAGE.read_text("utf-8")
    assert tables.rendered(page) == page, "run .venv/bin/python tests/unit/docs/command_tables.py"


def test_what_prints_json_has_a_schema_and_nothing_else_has() -> None:
    assert set(OUTPUTS) == {path for path, command in ALL.items() if "--output" in shown(command)} - {"controller"}


COUNTED_OR_LISTED = {"decisions", "logs", "members", "offline_replicas", "partitions", "replicas", "topics"}
"""Plurals: a number where a command counts them, a list where it shows them one by one."""
FROM_FILES = ("regency.judge.operations", "regency.history.records", "regency.cli.log.dump")
"""Whose records keep the names that they have in files."""
FORMER = {"at_ms", "bytes", "epoch", "id", "missing", "offline_partitions", "servers", "size", "successor"}
"""Other names for `time_ms`, `size_bytes`, `leader_epoch` or `controller_epoch`, `broker`, `leaderless` and so on."""


def kinds_of(kind: inspect.Type) -> set[str]:
    """What a field may be, but for null."""
    if isinstance(kind, inspect.UnionType):
        return set[str]().union(*map(kinds_of, kind.types))
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        return {"list"}
    name = type(kind).__name__.removesuffix("Type").lower()
    return {{"struct": "object", "dict": "object", "enum": "str", "int": "number", "float": "number"}.get(name, name)}


def structs_of(kind: Any) -> Iterator[inspect.StructType]:
    """Every object in a document."""
    if isinstance(kind, inspect.StructType):
        yield kind
    parts = [*getattr(kind, "types", ()), *(each.type for each in getattr(kind, "fields", ()))]
    for part in (*parts, getattr(kind, "item_type", None), getattr(kind, "value_type", None)):
        if part is not None:
            yield from structs_of(part)


def test_a_name_in_json_is_one_thing_in_all_commands() -> None:
    kinds: dict[str, set[str]] = {}
    for command in OUTPUTS:
        for struct in structs_of(inspect.type_info(output_type(command))):
            if not struct.cls.__module__.startswith(FROM_FILES) and not issubclass(struct.cls, Decision):
                for field in struct.fields:
                    kinds.setdefault(field.encode_name, set()).update(kinds_of(field.type) - {"none"})
    assert {name for name in kinds if name in FORMER} == set()
    several = {name: found for name, found in kinds.items() if len(found) > 1}
    assert several == {name: {"number", "list"} for name in several}
    assert set(several) == COUNTED_OR_LISTED


@pytest.mark.parametrize("path", sorted(LEAVES))
def test_options_have_the_words_of_the_page(path: str) -> None:
    options = shown(LEAVES[path])
    assert not {"--override", "--force", "--delete-config"} & set(options)
    assert "--wait" not in options or path in LOOKING
    assert "--no-wait" not in options or "--timeout" in options or path.startswith(("lab ", "topics create"))
    if "--config" in options:
        assert isinstance(options["--config"].type, click.Path)
    if "--set" in options:
        assert (options["--set"].multiple, options["--set"].metavar) == (True, "KEY=VALUE")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("topics", "create", "t", "--config", "a"), "--set"),
        (("topics", "alter", "t", "--config", "a"), "--set"),
        (("controller", "--override", "a", "status"), "KEY=VALUE"),
    ],
)
def test_what_was_said_before_is_still_understood_and_not_shown(words: tuple[str, ...], told: str) -> None:
    result = CliRunner().invoke(cli, words)
    assert (result.exit_code, told in result.stderr) == (2, True), result.output
    for before in ("--override", "--delete-config", "--force"):
        for path in (("topics", "create"), ("topics", "alter"), ("controller",), ("agent",), ("brokers", "shutdown")):
            assert before not in CliRunner().invoke(cli, [*path, "--help"]).stdout


@pytest.mark.parametrize("command", sorted(OUTPUTS))
def test_every_output_has_a_schema(command: str) -> None:
    result = CliRunner().invoke(cli, ["schema", *command.split()])
    assert (result.exit_code, '"$defs"' in result.stdout) == (0, True)


def test_schema_lists_what_there_is_and_refuses_what_is_none() -> None:
    assert CliRunner().invoke(cli, ["schema"]).stdout.split("\n")[:-1] == list(OUTPUTS)
    assert CliRunner().invoke(cli, ["schema", "nonsense"]).exit_code == 2
