"""How many deep schedules of the simulation a core plays a second: `./dev bench simulation --json FILE`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
from reporting import CORES, Figures, count, parser, repeat_and_report, run

SIMULATION = Path(__file__).resolve().parents[1] / "sim"


def main() -> None:
    options = parser(__doc__, runs=3)
    options.add_argument("--seeds", type=count, default=250, help="schedules of a run (default %(default)s)")
    arguments = options.parse_args()
    repeat_and_report(arguments, lambda: measure(arguments.seeds))


def measure(seeds: int) -> Figures:
    """The same schedules every time, one process a core. Raises RuntimeError where one fails."""
    options = ["--profile", "deep", "--seeds", str(seeds), "--jobs", str(CORES), "-o", "json"]
    paths = os.pathsep.join([str(SIMULATION), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    command = [sys.executable, "-m", "simulation", *options]
    played = subprocess.run(command, stdout=subprocess.PIPE, check=False, env={**os.environ, "PYTHONPATH": paths})
    report = msgspec.json.decode(played.stdout)
    if played.returncode != 0:
        raise RuntimeError(f"schedules failed: {', '.join(report['failed'])}")
    return {"schedules_per_core_second": report["schedules_per_core_second"]}


if __name__ == "__main__":
    sys.exit(run(main))
