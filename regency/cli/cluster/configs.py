"""`regency configs get | set | unset`: settings of topics and brokers, changed while they run."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

import click

from regency.cli.asking.config_requests import BROKER, TOPIC, Resource, alter, describe, is_own
from regency.cli.asking.trouble import warn_of_min_isr
from regency.cli.asking.wire import cluster_wire
from regency.cli.context import (
    INT32_MAX,
    TOPIC_NAME,
    cluster_options,
    completed,
    conclude,
    current,
    parse_pairs,
    print_json,
    show,
)
from regency.cli.exits import CommandFailed
from regency.model.settings.dynamic import Operation

ALL_BROKERS = "all"
_OPERATIONS = {"+": Operation.APPEND, "-": Operation.SUBTRACT}

_KIND = click.argument("kind", type=click.Choice(["topic", "broker"]))
_NAME = click.argument("name", shell_complete=completed("config_names"))
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Check only whether it would be allowed.")


@click.group()
@cluster_options
def configs() -> None:
    """Show and change settings of topics and brokers, while they run.

    \b
    Example:
      regency configs get topic flights
    """


@configs.command("get", short_help="Show what is set, and where.")
@_KIND
@_NAME
@click.argument("keys", nargs=-1, metavar="[KEY]...", shell_complete=completed("config_keys"))
@click.option("--all", "everything", is_flag=True, help="Defaults too, not only what was set.")
@cluster_options
def get(kind: str, name: str, keys: tuple[str, ...], everything: bool) -> None:
    """Show what is set for a topic, a broker, or all brokers, and where it stands.

    Without KEYs only what was set is shown. A broker is named by its id, all of them by `all`.

    \b
    Examples:
      regency configs get topic flights
      regency configs get topic flights min.insync.replicas
      regency configs get broker 1 --all
      regency configs get broker all -o json | jq '.[].key'
    """
    with cluster_wire(current().bootstrap_servers()) as wire:
        rows = describe(wire, resource(kind, name), keys or None)
        missing = [key for key in keys if key not in {row.key for row in rows}]
        if missing:
            near = get_close_matches(missing[0][:100], [row.key for row in describe(wire, resource(kind, name))], 1)
            raise CommandFailed(
                f"{resource(kind, name)} has no setting {missing[0]}.",
                hint=f"Did you mean {near[0]}?" if near else "`--all` lists what there is.",
            )
    if not everything and not keys:
        rows = [row for row in rows if row.source != "DEFAULT_CONFIG"]
        if kind == "topic":
            rows = [row for row in rows if row.source == "DYNAMIC_TOPIC_CONFIG"]
    show(rows, ["key", "value", "source", "read_only"])


@configs.command("set")
@_KIND
@_NAME
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...", shell_complete=completed("config_pairs"))
@_DRY_RUN
@cluster_options
def set_(kind: str, name: str, pairs: tuple[str, ...], dry_run: bool) -> None:
    """Set keys of a topic, a broker, or all brokers. KEY+=VALUE and KEY-=VALUE add to a list and take out of it.

    \b
    Examples:
      regency configs set topic flights retention.ms=86400000 min.insync.replicas=2
      regency configs set topic flights follower.replication.throttled.replicas+=0:4
      regency configs set broker all log.retention.ms=3600000
    """
    changes: dict[str, tuple[Operation, str | None]] = {}
    for key, value in parse_pairs(pairs, "KEY=VALUE").items():
        operation = _OPERATIONS.get(key[-1], Operation.SET)
        setting = key.rstrip("+-")
        if setting in changes:
            raise click.BadParameter(f"{setting} is said twice.", param_hint="KEY=VALUE")
        changes[setting] = (operation, value)
    _change(resource(kind, name), changes, dry_run=dry_run)


@configs.command("unset", short_help="Return keys to their defaults.")
@_KIND
@_NAME
@click.argument("keys", nargs=-1, required=True, metavar="KEY...", shell_complete=completed("config_keys"))
@_DRY_RUN
@cluster_options
def unset(kind: str, name: str, keys: tuple[str, ...], dry_run: bool) -> None:
    """Return keys of a topic, a broker, or all brokers to what they are by default.

    A key that was not set is named, and is no error: exit status 0, as where it was.

    \b
    Example:
      regency configs unset topic flights retention.ms
    """
    target = resource(kind, name)
    with cluster_wire(current().bootstrap_servers()) as wire:
        own = {row.key for row in describe(wire, target, keys) if is_own(target, row)}
    _change(target, dict.fromkeys(keys, (Operation.DELETE, None)), dry_run=dry_run, changing=own)
    for key in (each for each in dict.fromkeys(keys) if each not in own):
        conclude(f"{key} was not set for {target}.")


def resource(kind: str, name: str) -> Resource:
    """What is named. Raises a usage error for a broker that is no id."""
    if kind == "topic":
        return Resource(TOPIC, TOPIC_NAME.convert(name, None, None))
    if name == ALL_BROKERS:
        return Resource(BROKER, "")
    if not name.isdecimal() or int(name) > INT32_MAX:
        raise click.BadParameter(f"{name!r} is neither the id of a broker nor `{ALL_BROKERS}`.", param_hint="NAME")
    return Resource(BROKER, str(int(name)))


def _change(
    target: Resource,
    changes: dict[str, tuple[Operation, str | None]],
    *,
    dry_run: bool,
    changing: Collection[str] | None = None,
) -> None:
    """Change what is asked for, and say so where that changes anything; `changing` None: it does."""
    with cluster_wire(current().bootstrap_servers()) as wire:
        alter(wire, target, changes, dry_run=dry_run)
        if target.type == TOPIC and not dry_run:
            warn_of_min_isr(wire, target.name, changes)
        rows = describe(wire, target, list(changes)) if current().json and not dry_run else []
    if changing is None or changing:
        conclude(f"The settings of {target} {'could be' if dry_run else 'are'} changed.")
    if current().json:
        print_json(rows)
