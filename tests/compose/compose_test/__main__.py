"""`./dev compose-test`: arguments, the end in any case, and the summary."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import sys
from pathlib import Path

import msgspec

from compose_test import scenario
from compose_test.engine import ROOT, CannotRun, CommandFailed, find_compose, find_engine, have_images
from compose_test.image import BASE
from compose_test.project import Project
from compose_test.steps import Step, StepFailed, Steps
from regency.cli.exits import exit_on_termination

PASSED, FAILED, CANNOT_RUN = 0, 1, 3
OUT = ROOT / "tests" / "out" / "compose"
LAST_LINES = 12
DOWN_AT_MOST = 3
"""An interrupted `up` may have asked the engine for something that is there only after the first `down`."""


class Summary(msgspec.Struct, frozen=True):
    """What `-o json` prints."""

    passed: bool
    engine: str
    compose: str
    steps: list[Step]


def main() -> int:
    """Run the test; the exit status."""
    options = _arguments()
    try:
        engine, (command, version) = find_engine(), find_compose(options.compose)
        project = Project(options.project, command, options.image)
        _refuse_if_there(project, command)
        have_images(_images(options), pull=not options.no_pull)
    except (CannotRun, CommandFailed) as error:
        print(f"compose-test: {error}", file=sys.stderr)
        return CANNOT_RUN
    print(f"engine {engine}, `{shlex.join(command)}` {version}, project {project.name}", file=sys.stderr)
    steps = Steps()
    with exit_on_termination() as ending:
        try:
            scenario.run(steps, project, None if options.no_build else options.build_option)
        except (StepFailed, KeyboardInterrupt, SystemExit):
            pass
        finally:
            _end(steps, project, keep=options.keep)
    if ending.status is not None:
        return int(ending.status)
    print(f"compose-test: {'passed' if steps.ok else 'failed'}", file=sys.stderr)
    if options.output == "json":
        summary = Summary(steps.ok, engine, f"{shlex.join(command)} {version}", steps.done)
        print(msgspec.json.format(msgspec.json.encode(summary), indent=2).decode())
    return PASSED if steps.ok else FAILED


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev compose-test",
        description="Start docker-compose.yml on the container engine of this machine, break it on purpose, and see "
        "that nothing is lost. Everything it starts is removed in the end, also after Ctrl-C. It takes minutes.",
        epilog="Exit status: 0 passed, 1 failed, 2 wrong use, 3 cannot be run here (no engine, no compose, no images), "
        "130 interrupted. Logs of a run that failed are left in tests/out/compose.",
    )
    parser.add_argument(
        "--build-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="an option for `docker build` that this network needs; repeatable, as in --build-option=--network=host",
    )
    parser.add_argument("--no-build", action="store_true", help="the image is built already (see --image)")
    parser.add_argument("--no-pull", action="store_true", help="all images are on this machine; ask no registry")
    parser.add_argument("--image", default="regency:compose-test", metavar="NAME", help="what to build and use")
    parser.add_argument("--project", default="regency-test", metavar="NAME", help="name of the compose project")
    parser.add_argument(
        "--compose", metavar="COMMAND", help="`docker compose` or docker-compose; default: what is there"
    )
    parser.add_argument("--keep", action="store_true", help="leave everything running in the end")
    parser.add_argument(
        "-o", dest="output", choices=["text", "json"], default="text", help="a summary as JSON on stdout"
    )
    return parser.parse_args()


def _refuse_if_there(project: Project, command: tuple[str, ...]) -> None:
    if found := project.left():
        raise CannotRun(
            f"There is a project {project.name} already ({len(found)} containers, volumes and networks). "
            f"End it with `{shlex.join(command)} -p {project.name} --profile load --profile four down -v`, "
            "or choose another --project."
        )


def _images(options: argparse.Namespace) -> list[str]:
    """What has to be on this machine before anything is started."""
    named = re.findall(r"^ +image: *(\S+)", (ROOT / "docker-compose.yml").read_text(), flags=re.MULTILINE)
    images = [image for image in named if not image.startswith(("${", "grafana/"))]
    return [*images, options.image if options.no_build else BASE]


def _end(steps: Steps, project: Project, *, keep: bool) -> None:
    """Leave logs where something failed, and remove everything. No signal keeps this from being done."""
    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        if not steps.ok:
            _evidence(project)
        if keep:
            print(f"left running: {project.bootstrap_servers}", file=sys.stderr)
            return
        print("removing what was started …", file=sys.stderr)
        for _ in range(DOWN_AT_MOST):
            project.down(volumes=True)
            if not project.left():
                return
        print(f"compose-test: left behind: {project.left()}", file=sys.stderr)
    except CommandFailed as error:
        print(f"compose-test: not everything could be removed: {error}", file=sys.stderr)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _evidence(project: Project) -> None:
    """Write every container's log to tests/out/compose, and print the end of the agents'."""
    shutil.rmtree(OUT, ignore_errors=True)
    for file in project.leave_evidence(OUT):
        if not file.name.startswith("agent-"):
            continue
        end = file.read_text(errors="replace").splitlines()[-LAST_LINES:]
        print("\n".join([f"--- the end of {_short(file)}", *end]), file=sys.stderr)


def _short(file: Path) -> str:
    return os.path.relpath(file)


if __name__ == "__main__":
    sys.exit(main())
