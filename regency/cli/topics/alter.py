"""`regency topics alter`: more partitions, other settings."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from regency.cli.asking.config_requests import TOPIC, Resource, alter, describe
from regency.cli.asking.refusals import refusal
from regency.cli.asking.trouble import warn_of_min_isr
from regency.cli.asking.wire import REQUEST_TIMEOUT_MS, cluster_wire
from regency.cli.context import (
    TOPIC_NAME,
    Count,
    cluster_options,
    completed,
    conclude,
    current,
    parse_pairs,
    print_json,
)
from regency.cli.partitions.command import do_now, moving_now
from regency.cli.partitions.plans import Wish
from regency.cli.topics.making import parse_assignment, settings_option
from regency.model.facts import MAX_PARTITIONS
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.dynamic import Operation
from regency.runtime.daemon_options import Renamed

_GROW_VERSION = 3


class AlteredTopic(msgspec.Struct, frozen=True):
    """What `regency topics alter -o json` prints; `config` is all the topic has of its own afterwards."""

    topic: str
    partitions: int | None
    config: dict[str, str | None]


@click.command("alter")
@click.argument("name", type=TOPIC_NAME)
@click.option("--partitions", type=Count(1, MAX_PARTITIONS), help="Number of partitions it shall have.")
@click.option("--assignment", metavar="1:2:3,2:3:1", help="Brokers of each new partition, preferred leader first.")
@settings_option
@click.option(
    "--unset",
    "deleted",
    cls=Renamed,
    old=["--delete-config"],
    multiple=True,
    metavar="KEY",
    shell_complete=completed("config_keys"),
    help="Return a setting to its default; repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Check only whether it would be allowed.")
@cluster_options
def alter_topic(
    name: str,
    partitions: int | None,
    assignment: str | None,
    pairs: tuple[str, ...],
    deleted: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Add partitions to a topic, and change its settings. Settings are changed first.

    Records with a key that are sent later may go to another partition than those before. Partitions cannot be taken
    away.

    \b
    Examples:
      regency topics alter flights --partitions 12
      regency topics alter flights --set retention.ms=86400000 --unset segment.bytes
    """
    changes: dict[str, tuple[Operation, str | None]] = {
        key: (Operation.SET, value) for key, value in parse_pairs(pairs, "--set").items()
    }
    for key in deleted:
        if key in changes:
            raise click.UsageError(f"{key} is said twice, with --set and --unset or one of them.")
        changes[key] = (Operation.DELETE, None)
    if assignment is not None and partitions is None:
        raise click.UsageError("--assignment is for new partitions: say how many there shall be with --partitions.")
    if partitions is None and not changes:
        raise click.UsageError("Say what to alter: --partitions, --set or --unset.")
    servers = current().bootstrap_servers()
    if changes:
        with cluster_wire(servers) as wire:
            alter(wire, Resource(TOPIC, name), changes, dry_run=dry_run)
            if not dry_run:
                warn_of_min_isr(wire, name, changes)
        conclude(f"The settings of topic {name} {'could be' if dry_run else 'are'} changed.")
    if partitions is not None:
        _grow(servers, name, partitions, assignment, dry_run=dry_run)
        conclude(f"Topic {name} {'could have' if dry_run else 'has'} {partitions} partitions.")
    if current().json:
        with cluster_wire(servers) as wire:
            rows = describe(wire, Resource(TOPIC, name))
        config = {row.key: row.value for row in rows if row.source == "DYNAMIC_TOPIC_CONFIG"}
        print_json(AlteredTopic(name, partitions, config))


def _grow(servers: str, name: str, partitions: int, assignment: str | None, *, dry_run: bool) -> None:
    from regency.kafka.codec import CreatePartitionsRequest

    topic_class = CreatePartitionsRequest.CreatePartitionsTopic
    chosen = None
    if assignment is not None:
        chosen = [
            topic_class.CreatePartitionsAssignment(broker_ids=brokers)
            for brokers in parse_assignment(assignment).values()
        ]
    request = CreatePartitionsRequest(
        topics=[topic_class(name=name, count=partitions, assignments=chosen)],
        timeout_ms=REQUEST_TIMEOUT_MS,
        validate_only=dry_run,
    )
    with cluster_wire(servers) as wire:
        (result,) = wire.ask_ruler(request, _GROW_VERSION).results
    if result.error_code != ErrorCode.NONE:
        raise refusal(f"topic {name}", result.error_code, result.error_message)


@click.command("set-rf")
@click.argument("name", type=TOPIC_NAME)
@click.argument("factor", type=Count(1, 32767), metavar="N")
@moving_now
@cluster_options
def set_rf(name: str, factor: int, rollback: Path | None, waits: bool, timeout: float) -> int:
    """Give every partition of a topic N replicas. Those that stay do not move.

    New ones go where least is, apart on racks; those that are too many go from where most is, and from the dead first.
    Exit status 5 when it takes longer than --timeout, and goes on.

    \b
    Example:
      regency topics set-rf flights 3
    """
    return do_now(Wish(topics=(name,), replication_factor=factor), waits=waits, timeout=timeout, rollback=rollback)
