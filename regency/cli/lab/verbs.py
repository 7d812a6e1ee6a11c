"""`regency lab kill | stop | pause | resume | start | restart`: breaking and repairing the cluster of a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import click

from regency.cli.context import Seconds, completed, current, directory_option, output_option, print_json, say
from regency.cli.waiting import waiting
from regency.cluster.cluster import Cluster
from regency.cluster.lab import STOP_GRACE_S, Lab
from regency.cluster.state import command_for
from regency.cluster.verbs import Verb

_AWAITED: Final = {Verb.STOP: "leave in order", Verb.START: "register", Verb.RESTART: "leave and register again"}


@contextmanager
def attached() -> Iterator[Lab]:
    """The lab of the directory. Its errors spell calls as commands."""
    directory = current().directory
    with Cluster.attach(directory) as lab:
        lab.advise(lambda verb, target: command_for(directory, f"lab {verb.value} {target}"))
        yield lab


@click.group()
def lab() -> None:
    """Break and repair the cluster of `regency up`: kill, stop, pause, resume, start and restart its processes.

    \b
    Each takes one or several targets:
      2             broker 2: its agent and its controller process
      controller    the broker whose controller rules now
      flights-3     the broker that leads this partition now
      zookeeper     ZooKeeper, where the cluster has one of its own
      all           ZooKeeper and all brokers

    What is so already is said, and is no failure. Another program may have started the cluster.

    \b
    Examples:
      regency lab kill controller            then: regency top, regency history --since 1m
      regency lab pause 2                    a broker that hangs; regency lab resume 2
      regency lab start 2                    it comes back, in the background
    """


def _run(verb: Verb, targets: Sequence[str], *, grace_s: float = STOP_GRACE_S, wait: bool = True) -> None:
    with attached() as found, waiting(f"Waiting for {' '.join(targets)} to {_AWAITED.get(verb, verb.value)}"):
        try:
            done = found.act(verb, targets, grace_s=grace_s, wait=wait)
        except KeyboardInterrupt:
            say(f"What was begun goes on without this command; {command_for(current().directory, 'status')} tells.")
            raise
    if current().json:
        print_json(done)
        return
    for each in done:
        click.echo(each.words)


def _targets(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the targets, `--dir` and `-o`."""
    argument = click.argument(
        "targets", nargs=-1, required=True, metavar="TARGET...", shell_complete=completed("lab_parts")
    )
    return argument(directory_option(output_option(command)))


@lab.command()
@_targets
def kill(targets: tuple[str, ...]) -> None:
    """Send SIGKILL: a crash. Of a broker, to agent and controller process.

    \b
    Examples:
      regency lab kill 2
      regency lab kill 1 3
      regency lab kill controller
      regency lab kill flights-3
    """
    _run(Verb.KILL, targets)


_grace = click.option(
    "--timeout", type=Seconds(0), default=STOP_GRACE_S, show_default=True, help="Seconds before SIGKILL."
)
_no_wait = click.option("--no-wait", is_flag=True, help="Do not wait until brokers are registered.")


@lab.command()
@_grace
@_targets
def stop(targets: tuple[str, ...], timeout: float) -> None:
    """Stop in order: a broker gives its leadership away first.

    \b
    Examples:
      regency lab stop 2
      regency lab stop controller --timeout 5
    """
    _run(Verb.STOP, targets, grace_s=timeout)


@lab.command()
@_targets
def pause(targets: tuple[str, ...]) -> None:
    """Send SIGSTOP: a hang. Connections stay open, and nothing is answered.

    \b
    Examples:
      regency lab pause 2
      regency lab pause zookeeper
    """
    _run(Verb.PAUSE, targets)


@lab.command()
@_targets
def resume(targets: tuple[str, ...]) -> None:
    """Send SIGCONT to what is paused.

    \b
    Examples:
      regency lab resume 2
      regency lab resume all
    """
    _run(Verb.RESUME, targets)


@lab.command()
@_no_wait
@_targets
def start(targets: tuple[str, ...], no_wait: bool) -> None:
    """Start what is dead, in the background. Waits until it is registered.

    Data, ports and log are those it had. `regency up` starts everything that is dead.

    \b
    Examples:
      regency lab start 2
      regency lab start zookeeper 1 2 3
    """
    _run(Verb.START, targets, wait=not no_wait)


@lab.command()
@_grace
@_no_wait
@_targets
def restart(targets: tuple[str, ...], timeout: float, no_wait: bool) -> None:
    """Stop in order what runs, then start it again. All targets are down at the same time: name one for a roll.

    \b
    Examples:
      regency lab restart 2
      regency lab restart zookeeper
    """
    _run(Verb.RESTART, targets, grace_s=timeout, wait=not no_wait)
