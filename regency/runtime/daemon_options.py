"""The command line of a daemon: where its settings come from, and what becomes of a user's mistake."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import msgspec

from regency.model.errors import RegencyError
from regency.model.settings import BrokerSettings
from regency.runtime.settings_loader import load_settings

INTERRUPTED = 130  # 128 + SIGINT, as shells say it
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


class SettingsOptions(msgspec.Struct, frozen=True):
    """`--config`, `--override` and `--environment`."""

    config: Path | None
    overrides: tuple[str, ...]
    environment: bool

    def load(self) -> BrokerSettings:
        """The settings. Raises SettingsInvalid."""
        return load_settings(self.config, self.overrides, os.environ if self.environment else None)

    def words(self) -> list[str]:
        """The same options for the command line of a child."""
        words = ["--config", str(self.config)] if self.config is not None else []
        words += ["--environment"] if self.environment else []
        return [*words, *(word for pair in self.overrides for word in ("--override", pair))]


def settings_options(function: Callable[..., object]) -> Callable[..., object]:
    """Give a command the options of SettingsOptions, as keywords of that class's names."""
    for option in (
        click.option("--environment", is_flag=True, help="Take settings from variables KAFKA_* too."),
        click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="In place of the file's."),
        click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="A server.properties."),
    ):
        function = option(function)
    return function


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
