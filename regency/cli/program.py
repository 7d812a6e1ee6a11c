"""The program `regency`. What it is made of takes a moment to import, and Ctrl-C may come in that moment."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Import the commands, run one, and end the process with its status."""
    try:
        from regency.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
