"""docs/reference/commands.md says what the code does: exit statuses, fields of JSON, and the words of options."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from regency.cli.main import cli
from regency.cli.schemas import OUTPUTS
from regency.runtime.daemon_options import Renamed

MAKER = Path(__file__).with_name("command_tables.py")
OF_OTHERS = ("pipeline", "log dump", "demo")
"""Which follow Spark, files, or nothing at all."""
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


LEAVES = {path: command for path, command in leaves() if not path.startswith(OF_OTHERS)}


def test_the_tables_are_current(tables: ModuleType) -> None:
    page = tables.PAGE.read_text("utf-8")
    assert tables.rendered(page) == page, "run .venv/bin/python tests/unit/docs/command_tables.py"


def test_every_output_is_of_a_command(tables: ModuleType) -> None:
    assert set(OUTPUTS) <= set(LEAVES)


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
