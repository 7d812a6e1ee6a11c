"""`regency topics delete`: asks, waits until nothing of the topics is left, and says what they wait for."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import click
import msgspec

from regency.cli.asking.kafka_clients import REQUEST_TIMEOUT_MS, admin_client
from regency.cli.asking.refusals import refusal
from regency.cli.asking.wire import ClusterWire, cluster_wire
from regency.cli.context import TOPIC_NAME, Seconds, cluster_options, current, print_json, say
from regency.cli.exits import CommandFailed, Exit
from regency.clients.controllers import ask_controller
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2
from regency.runtime.grpc.channels import RpcFailed
from regency.runtime.grpc.clients import AdminClient

LOOK_EVERY_S = 0.2
STANDSTILL_S = 3.0
"""Topics that have waited for so long for something are not waited for any longer."""


class DeletedRow(msgspec.Struct, frozen=True):
    """A topic in what `regency topics delete -o json` prints."""

    topic: str
    deleted: bool
    """Whether nothing of it is left; false: it goes on by itself."""
    replicas: int | None = None
    """All it had, where some are left."""
    replicas_deleted: int | None = None
    waits_for: str | None = None
    offline: list[int] = []
    """Brokers that hold replicas and cannot delete them now."""
    error: str | None = None
    """Why it will not be deleted."""


class _Reply(msgspec.Struct):
    name: str | None
    error_code: int
    error_message: str | None = None


class _Described(msgspec.Struct):
    name: str
    error_code: int


@click.command("delete", short_help="Delete topics, and wait until they are gone.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", type=TOPIC_NAME)
@click.option("--yes", is_flag=True, help="Do not ask whether that is meant.")
@click.option("--timeout", type=Seconds(0), default=60.0, show_default=True, help="Seconds to wait until all is gone.")
@click.option("--no-wait", is_flag=True, help="Do not wait: clients see the topics no more, the rest goes on.")
@cluster_options
def delete_topics(names: tuple[str, ...], yes: bool, timeout: float, no_wait: bool) -> int:
    """Delete topics with all their records, and wait until nothing of them is left.

    A replica on a broker that is down is deleted when that broker returns; until then the name stays taken. A broker
    that is gone for good is not waited for once `regency brokers forget` says so. Exit status 4 when it has to wait for
    a broker, 5 when the time is over, 6 when nobody said yes.

    \b
    Examples:
      regency topics delete flights
      regency topics delete flights hotels --yes -o json
    """
    wanted = list(dict.fromkeys(names))
    _confirm(wanted, yes)
    servers = current().bootstrap_servers()
    errors, late = _ask(servers, wanted)
    going = [name for name in wanted if name not in errors]
    with cluster_wire(servers) as wire:
        try:
            left = _list(wire, going) if no_wait else _wait(wire, going, timeout)
        except CommandFailed as error:
            if not late:
                raise
            raise _unknown(late) from error
    errors.update(_never_begun(servers, {name: error for name, error in late.items() if name not in left}))
    rows = [_row(name, errors.get(name), left.get(name)) for name in wanted]
    for row in rows:
        _tell(row)
    if current().json:
        print_json(rows)
    return _status(rows, no_wait=no_wait)


def _confirm(names: Sequence[str], yes: bool) -> None:
    if yes:
        return
    listed = ", ".join(names)
    if not sys.stdin.isatty():
        raise CommandFailed(
            f"Deleting {listed} cannot be undone.", hint="Say --yes if it is meant.", status=Exit.REFUSED
        )
    if not click.confirm(f"Delete {listed}, with all records?", err=True):
        raise CommandFailed("Nothing was deleted.", status=Exit.REFUSED)


def _ask(servers: str, names: Sequence[str]) -> tuple[dict[str, CommandFailed], dict[str, CommandFailed]]:
    """Ask for the deletion. Returns what was refused, and what got no answer in time and may have begun."""
    with admin_client(servers) as client:
        answer = client.delete_topics(list(names), timeout_ms=REQUEST_TIMEOUT_MS, raise_errors=False)
    replies = [msgspec.convert(dict(each), _Reply, strict=False) for each in answer["topics"]]
    failed = {
        reply.name or "": refusal(f"topic {reply.name}", reply.error_code, reply.error_message)
        for reply in replies
        if reply.error_code != ErrorCode.NONE
    }
    late = {name: error for name, error in failed.items() if error.status is Exit.TIMED_OUT}
    return {name: error for name, error in failed.items() if name not in late}, late


def _unknown(late: Mapping[str, CommandFailed]) -> CommandFailed:
    """What to say where neither the request was answered nor anybody can be asked what became of it."""
    first = next(iter(late.values()))
    return CommandFailed(
        f"Whether {', '.join(late)} will be deleted is not known: {first}",
        hint="Say it again when a controller rules: `regency controller status`.",
        status=Exit.TIMED_OUT,
    )


def _never_begun(servers: str, late: Mapping[str, CommandFailed]) -> dict[str, CommandFailed]:
    """Those that are still there although nobody deletes them: the request was lost."""
    if not late:
        return {}
    with admin_client(servers) as client:
        found = [msgspec.convert(dict(each), _Described, strict=False) for each in client.describe_topics(list(late))]
    return {each.name: late[each.name] for each in found if each.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def _wait(wire: ClusterWire, names: Sequence[str], timeout_s: float) -> Mapping[str, admin_pb2.Deletion]:
    """Those that are left when nothing moves any more, or the time is over."""
    deadline = time.monotonic() + timeout_s
    moved, before = time.monotonic(), ""
    while True:
        left = _list(wire, names)
        now = time.monotonic()
        words = ", ".join(f"{each.topic} {each.deleted} of {each.replicas}{each.waits_for}" for each in left.values())
        if words != before:
            moved, before = now, words
        stands = all(each.waits_for for each in left.values()) and now - moved >= STANDSTILL_S
        if not left or stands or now >= deadline:
            return left
        time.sleep(LOOK_EVERY_S)


def _list(wire: ClusterWire, names: Sequence[str]) -> dict[str, admin_pb2.Deletion]:
    """How far these deletions are, as the ruling controller has it; those that are done are missing."""
    for attempt in _attempts():
        try:
            ruling = wire.ruling()
            answer = ask_controller(
                ruling.address, lambda channel: AdminClient(channel).list_deletions, admin_pb2.ListDeletionsRequest()
            )
        except (RpcFailed, CommandFailed) as error:
            if attempt:
                raise CommandFailed(
                    f"The topics are being deleted; how far that is, nobody tells: {error}",
                    hint="`regency controller status` shows who rules.",
                    status=Exit.IN_PROGRESS,
                ) from error
            continue
        if answer.outcome.error_code == ErrorCode.NONE:
            return {each.topic: each for each in answer.deletions if each.topic in names}
    raise CommandFailed("The topics are being deleted; no controller rules now.", status=Exit.IN_PROGRESS)


def _attempts() -> Iterator[bool]:
    """Tries over some seconds, as long as an election takes; true with the last one."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        yield False
        time.sleep(LOOK_EVERY_S)
    yield True


def _row(name: str, error: CommandFailed | None, left: admin_pb2.Deletion | None) -> DeletedRow:
    if error is not None:
        return DeletedRow(name, deleted=False, error=str(error))
    if left is None:
        return DeletedRow(name, deleted=True)
    return DeletedRow(name, False, left.replicas, left.deleted, left.waits_for or None, list(left.offline))


def _tell(row: DeletedRow) -> None:
    if row.error is not None:
        say(f"Error: {row.error}")
    elif row.deleted:
        say(f"Deleted topic {row.topic}.")
    else:
        why = f"; {row.waits_for}" if row.waits_for else ""
        say(f"Topic {row.topic} is being deleted: {row.replicas_deleted} of {row.replicas} replicas are{why}.")
        if row.offline:
            listed = ", ".join(map(str, row.offline))
            say(f"It goes on by itself when that is over for broker {listed}; until then the name stays taken.")


def _status(rows: Sequence[DeletedRow], *, no_wait: bool) -> int:
    if any(row.error is not None for row in rows):
        return Exit.FAILED
    left = [row for row in rows if not row.deleted]
    if not left or no_wait:
        return Exit.DONE
    return Exit.IN_PROGRESS if all(row.waits_for for row in left) else Exit.TIMED_OUT
