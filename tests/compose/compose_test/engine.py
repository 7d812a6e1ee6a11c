"""The container engine and compose, by their command lines: whatever people have installed is what is tested."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
COMPOSE_COMMANDS = (("docker", "compose"), ("docker-compose",))
"""Tried in this order."""
LAST_LINES = 15


class CannotRun(Exception):
    """The test cannot be run on this machine; says what is missing and what to do."""


class CommandFailed(Exception):
    """A command of the engine failed."""

    def __init__(self, command: Sequence[str], status: int, said: str) -> None:
        end = "\n".join(said.strip().splitlines()[-LAST_LINES:])
        super().__init__(f"`{shlex.join(command)}` ended with {status}:\n{end}")
        self.said = said


def call(command: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float = 60) -> str:
    """Run a command to its end; what it wrote to stdout. Raises CommandFailed.

    In a session of its own: Ctrl-C is for the test, which then ends what it started in order.
    """
    try:
        done = subprocess.run(
            list(command),
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(command, -1, f"not done after {timeout_s:.0f} s") from error
    if done.returncode != 0:
        raise CommandFailed(command, done.returncode, done.stderr or done.stdout)
    return done.stdout


def docker(*words: str, timeout_s: float = 60) -> str:
    return call(("docker", *words), timeout_s=timeout_s)


def inspect(*words: str) -> dict[str, Any]:
    """The one document of `docker [container | image] inspect`. Raises CommandFailed."""
    [document] = json.loads(docker(*words[:-1], "inspect", words[-1]))
    assert isinstance(document, dict)
    return document


def log_of(container: str) -> str:
    """Everything a container has written, stdout and stderr. Raises CommandFailed."""
    command = ["docker", "logs", container]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, errors="replace")
    if done.returncode != 0:
        raise CommandFailed(command, done.returncode, done.stderr)
    return done.stdout + done.stderr


def find_engine() -> str:
    """The engine's version. Raises CannotRun where none answers."""
    if shutil.which("docker") is None:
        raise CannotRun("There is no command `docker`. Install Docker Engine, or run this where it is.")
    try:
        return docker("version", "--format", "{{.Server.Version}}").strip()
    except CommandFailed as error:
        raise CannotRun(
            f"No container engine answers: {error.said.strip().splitlines()[-1]}\n"
            "Start it (systemctl start docker), or point DOCKER_HOST at one; who calls it needs the right to."
        ) from error


def find_compose(asked: str | None) -> tuple[tuple[str, ...], str]:
    """The command for compose, and its version. `asked`: this one and no other. Raises CannotRun."""
    tried = [tuple(shlex.split(asked))] if asked else list(COMPOSE_COMMANDS)
    for command in tried:
        try:
            return command, call((*command, "version", "--short")).strip()
        except (CommandFailed, OSError):
            continue
    names = " nor ".join(f"`{shlex.join(command)}`" for command in tried)
    raise CannotRun(f"Compose is not there: neither {names} works. Install the compose plugin, or docker-compose 1.29.")


def have_images(images: Sequence[str], *, pull: bool) -> None:
    """Have each image on this machine, from its registry where `pull` is set. Raises CannotRun."""
    missing = [image for image in images if not _is_there(image)]
    if missing and not pull:
        raise CannotRun(
            f"Not on this machine: {', '.join(missing)}. `docker pull` them, or leave --no-pull out to have it done."
        )
    for image in missing:
        try:
            docker("pull", "--quiet", image, timeout_s=600)
        except CommandFailed as error:
            raise CannotRun(f"{image} is not on this machine and cannot be had: {error}") from error


def _is_there(image: str) -> bool:
    try:
        docker("image", "inspect", image)
    except CommandFailed:
        return False
    return True
