"""The options of `./dev sim`, and which of them cannot be meant together."""

from __future__ import annotations

import math
import os
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from difflib import get_close_matches

from simulation.defects import DEFECTS, UNSEEN
from simulation.shape import PROFILES, Shape, shape_of

PROGRAM = "./dev sim"
UNRECONCILED = "--unreconciled"
ABOUT = "`./dev sim`: runs many seeds on all cores, and shows what failed and how to see it again."
EPILOG = """examples:
  ./dev sim --seeds 200                       200 schedules of the quick profile
  ./dev sim --seeds 50 --profile deep --seed 1000
  ./dev sim --seed 17 --seeds 1 --trace       one schedule, every event of it
  ./dev sim --seconds 170 -o json             as many as fit

exit status: 0 all passed, 1 something failed, 2 wrong use, or output that cannot be written, 130 Ctrl-C,
             141 nobody reads the output any more
"""
MANY = 300
"""Deep schedules that together pass every crash point."""

MOST_JOBS = 256
ENOUGH_FAILURES = 5


def options_of(arguments: Sequence[str] | None) -> Namespace:
    """Read the arguments. Raises SystemExit, with status 2 where they cannot be meant."""
    parser = ArgumentParser(prog=PROGRAM, description=ABOUT, epilog=EPILOG, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="how many schedules (default: 100, or no limit with --seconds)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the first seed (default: 1)")
    parser.add_argument("--profile", choices=PROFILES, default="quick", help="kind of schedules (default: quick)")
    parser.add_argument("--trace", action="store_true", help="run the one seed and print everything that happens")
    parser.add_argument("--seconds", type=float, metavar="T", help="begin no schedule after so many seconds")
    parser.add_argument("--jobs", type=int, metavar="J", help="processes (default: one a core)")
    parser.add_argument("--defect", metavar="NAME", help="plant a defect (see docs/internals/simulation.md)")
    parser.add_argument(
        UNRECONCILED, action="store_true", help="controllers never reconcile, as with most defects; no memory is lost"
    )
    parser.add_argument("--defects", action="store_true", help="list the defects that can be planted, and end")
    parser.add_argument(
        "--stop-after", type=int, metavar="F", help=f"failures after which to stop (default: {ENOUGH_FAILURES})"
    )
    parser.add_argument(
        "--points", action="store_true", help="list every crash point: how often passed, how often struck at"
    )
    parser.add_argument(
        "--all-points",
        action="store_true",
        help=f"fail also when {MANY} schedules or more leave a crash point that none has passed",
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="form of the report")
    options = parser.parse_args(arguments)
    _refuse_nonsense(parser, options)
    if options.seeds is None and options.seconds is None:
        options.seeds = 100
    options.jobs = options.jobs or os.cpu_count() or 1
    if options.seeds is not None:
        options.jobs = min(options.jobs, options.seeds)
    options.stop_after = options.stop_after or ENOUGH_FAILURES
    options.defect = options.defect or ""
    return options


def wanted_shape(options: Namespace, seed: int) -> Shape:
    """The run of a seed that the options want, before a defect has its say."""
    shape = shape_of(options.profile, seed)
    return shape.unreconciled() if options.unreconciled else shape


def again(profile: str, seed: int, *, unreconciled: bool, defect: str = "") -> str:
    command = f"{PROGRAM} --profile {profile} --seed {seed} --seeds 1 --trace"
    command += f" {UNRECONCILED}" if unreconciled else ""
    return command + (f" --defect {defect}" if defect else "")


def _refuse_nonsense(parser: ArgumentParser, options: Namespace) -> None:
    """End with status 2 and a line where options cannot be meant."""
    for name in ("seeds", "jobs", "stop_after"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    if options.jobs is not None and options.jobs > MOST_JOBS:
        parser.error(f"--jobs must be at most {MOST_JOBS}, not {options.jobs}")
    if options.seconds is not None and not (math.isfinite(options.seconds) and options.seconds > 0):
        parser.error(f"--seconds must be more than 0, not {options.seconds:g}")
    known = {**DEFECTS, **UNSEEN}
    if options.defect is not None and options.defect not in known:
        near = get_close_matches(options.defect, known, 3)
        hint = f"perhaps {' or '.join(near)}" if near else "--defects lists them"
        parser.error(f"there is no defect {options.defect!r}; {hint}")
    if options.defects and (given := _in_vain_with_defects(parser, options)):
        parser.error(f"--defects runs nothing: leave out {', '.join(given)}")
    if options.trace and (given := _in_vain_with_trace(options)):
        parser.error(f"--trace shows one schedule: leave out {', '.join(given)}")


def _in_vain_with_defects(parser: ArgumentParser, options: Namespace) -> list[str]:
    """What was given beside --defects and would change nothing."""
    names = [name for name in vars(options) if name not in ("defects", "output")]
    given = [name for name in names if getattr(options, name) != parser.get_default(name)]
    return [f"--{name.replace('_', '-')}" for name in given]


def _in_vain_with_trace(options: Namespace) -> list[str]:
    """What was given beside --trace and would change nothing, or cannot be had."""
    given = {
        "--seeds": options.seeds not in (None, 1),
        "--seconds": options.seconds is not None,
        "--jobs": options.jobs not in (None, 1),
        "--stop-after": options.stop_after not in (None, 1),
        "--points": options.points,
        "--all-points": options.all_points,
        "-o json": options.output == "json",
    }
    return [name for name, is_given in given.items() if is_given]
