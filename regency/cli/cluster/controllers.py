"""`regency controller status | resign`, and a controller alone in the foreground."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from regency.cli.asking.controllers import ControllerFacts, newest_ruler, nobody_rules
from regency.cli.asking.wire import ClusterWire, cluster_wire, tell_controller
from regency.cli.context import Seconds, cluster_options, conclude, current, print_json, say, show
from regency.cli.exits import CommandFailed, Exit
from regency.cli.lab.daemons import become
from regency.protos import admin_pb2
from regency.runtime.daemon_options import CONFIG, OVERRIDE, SettingsOptions

_LOOK_EVERY_S = 0.1


class Succession(msgspec.Struct, frozen=True):
    """What `regency controller resign -o json` prints: which broker's controller resigned, in which epoch it had ruled,
    and which rules now; None where that was not waited for."""

    resigned: int
    resigned_epoch: int
    controller: int | None
    controller_epoch: int | None


@click.group(invoke_without_command=True)
@CONFIG
@OVERRIDE
@cluster_options
@click.pass_context
def controller(context: click.Context, config: Path | None, overrides: tuple[str, ...]) -> None:
    """Show who rules, have another rule, or run a controller alone, as one more candidate, in the foreground.

    \b
    Examples:
      regency controller status
      regency controller resign
      regency controller --config server.properties     until SIGTERM or Ctrl-C; its log goes to stderr
    """
    if context.invoked_subcommand is not None:
        if config is not None or overrides:
            raise click.UsageError("--config and --set are for a controller in the foreground.")
        return
    if config is None:
        raise click.UsageError("Say `status` or `resign`, or --config FILE to run a controller alone.")
    become("regency.controller", SettingsOptions(config, overrides))


@controller.command()
@cluster_options
def status() -> int:
    """Show every controller process, and which of them rules. Exit status 3 unless exactly one does.

    Right after one resigned or died an election is under way, for some tenths of a second: no controller rules then.

    \b
    Examples:
      regency controller status
      regency controller status -o json | jq '.[] | select(.rules) | .broker'
    """
    with cluster_wire(current().bootstrap_servers()) as wire:
        facts = wire.controller_facts()
    show(facts, [field.name for field in msgspec.structs.fields(ControllerFacts) if field.name != "blocked"])
    for each in facts:
        if each.rules is None:
            conclude(f"The controller of broker {each.broker} does not answer at {each.address}.")
    rule = [each for each in facts if each.rules]
    for each in rule:
        conclude(f"The controller of broker {each.broker} rules in epoch {each.epoch}.")
    cut_off = [str(each.broker) for each in facts if each.in_contact is False]
    if not rule:
        conclude(nobody_rules(facts))
    elif cut_off:
        conclude(f"No contact with ZooKeeper: broker {', '.join(cut_off)}.")
    return Exit.DONE if len(rule) == 1 else Exit.UNHEALTHY


@controller.command()
@click.option("--timeout", type=Seconds(0), default=30.0, show_default=True, help="Seconds to wait for a successor.")
@click.option("--no-wait", is_flag=True, help="Do not wait until another rules.")
@cluster_options
def resign(timeout: float, no_wait: bool) -> None:
    """Have the ruling controller resign, and wait until another rules. Partitions keep their leaders.

    The one that resigned does not stand for the next election while brokers with other candidates are live.
    Exit status 5 when no controller rules in time.

    \b
    Example:
      regency controller resign
    """
    with cluster_wire(current().bootstrap_servers()) as wire:
        before = wire.ruling()
        answer = tell_controller(before, "the controller", lambda admin: admin.resign, admin_pb2.ResignRequest())
        epoch: int = answer.controller_epoch
        say(f"The controller of broker {before.broker} resigned; its epoch was {epoch}.")
        after = None if no_wait else _await_successor(wire, epoch, timeout)
    if after is not None:
        conclude(f"The controller of broker {after.broker} rules in epoch {after.epoch}.")
    if current().json:
        print_json(
            Succession(before.broker, epoch, None if after is None else after.broker, after.epoch if after else None)
        )


def _await_successor(wire: ClusterWire, epoch: int, timeout_s: float) -> ControllerFacts:
    deadline = time.monotonic() + timeout_s
    while True:
        rules = newest_ruler(wire.controller_facts())
        if rules is not None and (rules.epoch or 0) > epoch:
            return rules
        if time.monotonic() >= deadline:
            raise CommandFailed(f"No controller rules after {timeout_s:g} s.", status=Exit.TIMED_OUT)
        time.sleep(_LOOK_EVERY_S)
