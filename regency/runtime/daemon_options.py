"""The command line of a daemon: where its settings come from, and what becomes of a user's mistake."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from regency.model.errors import RegencyError
from regency.model.settings import BrokerSettings
from regency.runtime.settings_loader import load_settings

INTERRUPTED = 130  # 128 + SIGINT, as shells say it
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


class Renamed(click.Option):
    """An option that is still taken under the names it had before, `old`, which help does not show."""

    def __init__(self, param_decls: Sequence[str], *, old: Sequence[str], **attributes: Any) -> None:
        super().__init__([*param_decls, *old], **attributes)
        self.old = frozenset(old)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """What help says of it, by its present names."""
        everything = self.opts
        self.opts = [name for name in everything if name not in self.old]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = everything


class SettingsOptions(msgspec.Struct, frozen=True):
    """`--config`, `--set` and `--environment`."""

    config: Path | None
    overrides: tuple[str, ...]
    environment: bool = False

    def load(self) -> BrokerSettings:
        """The settings. Raises SettingsInvalid."""
        return load_settings(self.config, self.overrides, os.environ if self.environment else None)

    def words(self) -> list[str]:
        """The same options for the command line of a child."""
        words = ["--config", str(self.config)] if self.config is not None else []
        words += ["--environment"] if self.environment else []
        return [*words, *(word for pair in self.overrides for word in ("--set", pair))]


def _pairs(_: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]) -> tuple[str, ...]:
    for pair in pairs:
        if "=" not in pair:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE.", param=parameter)
    return pairs


CONFIG = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A server.properties with Kafka's keys.",
)
OVERRIDE = click.option(
    "--set",
    "overrides",
    cls=Renamed,
    old=["--override"],
    multiple=True,
    metavar="KEY=VALUE",
    callback=_pairs,
    help="Replaces a key of the file.",
)
ENVIRONMENT = click.option(
    "--environment",
    is_flag=True,
    help="Variables replace keys of the file, as in images of Kafka: KAFKA_BROKER_ID is broker.id.",
)


def settings_options(function: Callable[..., object]) -> Callable[..., object]:
    """Give a command the options of SettingsOptions, as keywords of that class's names."""
    return CONFIG(OVERRIDE(ENVIRONMENT(function)))


def run_daemon(command: click.Command, arguments: Sequence[str] | None) -> int:
    """Run the command. Returns its exit status: 1 for a RegencyError, 2 for wrong use; both are one line on stderr."""
    try:
        status: int = command.main(arguments, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except RegencyError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1
    except click.Abort:
        return INTERRUPTED
    return status
