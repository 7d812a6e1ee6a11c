"""`python -m simulation`, which is `./dev sim`."""

from __future__ import annotations

import signal

from simulation.output import say


def main() -> int:
    """Run the command. 130 when Ctrl-C comes while it is being loaded, which takes a second."""
    try:
        from simulation.command import main as command

        return command()
    except KeyboardInterrupt:
        say("./dev sim: interrupted before the first schedule\n")
        return 128 + signal.SIGINT


if __name__ == "__main__":
    raise SystemExit(main())
