"""`regency topics delete`: asks, waits until nothing of the topics is left, and says what they wait for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import click
import msgspec

from regency.cli.asking.deletions import ongoing, progress
from regency.cli.asking.missing import explained
from regency.cli.asking.refusals import TopicMissing, refusal
from regency.cli.asking.wire import REQUEST_TIMEOUT_MS, RULER_WITHIN_S, ClusterWire, cluster_wire
from regency.cli.context import TOPIC_NAME, Seconds, cluster_options, conclude, confirm, current, print_json, say
from regency.cli.exits import CommandFailed, Exit
from regency.model.ids import ZERO_TOPIC_ID
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2

_VERSION = 6
LOOK_EVERY_S = 0.2
STANDSTILL_S = 3.0
"""Topics that have waited for so long for something are not waited for any longer."""


class DeletedRow(msgspec.Struct, frozen=True, rename={"offline": "offline_replicas"}):
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
    a broker, 5 when the time is over, 6 without a yes.

    \b
    Examples:
      regency topics delete flights
      regency topics delete flights hotels --yes -o json
    """
    wanted = list(dict.fromkeys(names))
    listed = ", ".join(wanted)
    confirm(f"Deleting {listed}", f"Delete {listed}, with all records?", yes=yes)
    with cluster_wire(current().bootstrap_servers()) as wire:
        errors, late = _ask(wire, wanted)
        going = [name for name in wanted if name not in errors]
        try:
            left = _list(wire, going) if no_wait else _wait(wire, going, timeout)
        except CommandFailed as error:
            if not late:
                raise
            raise _unknown(late) from error
        errors.update(_never_begun(wire, {name: error for name, error in late.items() if name not in left}))
    rows = [_row(name, errors.get(name), left.get(name)) for name in wanted]
    for row in rows:
        _tell(row, left.get(row.topic))
    if current().json:
        print_json(rows)
    return _status(rows, no_wait=no_wait)


def _ask(wire: ClusterWire, names: Sequence[str]) -> tuple[dict[str, CommandFailed], dict[str, CommandFailed]]:
    """Ask for the deletion. Returns what was refused, and what got no answer in time and may have begun."""
    from regency.kafka.codec import DeleteTopicsRequest

    topics = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_TOPIC_ID) for name in names]
    answer = wire.ask_ruler(DeleteTopicsRequest(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS), _VERSION)
    failed = {
        str(each.name): _refused(refusal(f"topic {each.name}", each.error_code, each.error_message))
        for each in answer.responses
        if each.error_code != ErrorCode.NONE
    }
    late = {name: error for name, error in failed.items() if error.status is Exit.TIMED_OUT}
    return {name: error for name, error in failed.items() if name not in late}, late


def _refused(error: CommandFailed) -> CommandFailed:
    return explained(current().bootstrap_servers(), error) if isinstance(error, TopicMissing) else error


def _unknown(late: Mapping[str, CommandFailed]) -> CommandFailed:
    """What to say where neither the request was answered nor anybody can be asked what became of it."""
    first = next(iter(late.values()))
    return CommandFailed(
        f"Whether {', '.join(late)} will be deleted is not known: {first}",
        hint="Say it again when a controller rules: `regency controller status`.",
        status=Exit.TIMED_OUT,
    )


def _never_begun(wire: ClusterWire, late: Mapping[str, CommandFailed]) -> dict[str, CommandFailed]:
    """Those that are still there and not being deleted: the request was lost."""
    found = wire.topics(late) if late else []
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
    deadline = time.monotonic() + RULER_WITHIN_S
    while True:
        try:
            return {each.topic: each for each in ongoing(wire) if each.topic in names}
        except CommandFailed as error:
            if time.monotonic() >= deadline:
                raise CommandFailed(
                    f"The topics are being deleted; how far that is, is not known: {error}",
                    hint="`regency controller status` shows who rules.",
                    status=Exit.IN_PROGRESS,
                ) from error
        time.sleep(LOOK_EVERY_S)


def _row(name: str, error: CommandFailed | None, left: admin_pb2.Deletion | None) -> DeletedRow:
    if error is not None:
        return DeletedRow(name, deleted=False, error=str(error))
    if left is None:
        return DeletedRow(name, deleted=True)
    return DeletedRow(name, False, left.replicas, left.deleted, left.waits_for or None, list(left.offline))


def _tell(row: DeletedRow, left: admin_pb2.Deletion | None) -> None:
    if row.error is not None:
        say(f"Error: {row.error}")
    elif left is None:
        conclude(f"Deleted topic {row.topic}.")
    else:
        conclude(progress(left))
        if row.offline:
            listed = ", ".join(map(str, row.offline))
            conclude(f"It goes on by itself when that is over for broker {listed}; until then the name stays taken.")


def _status(rows: Sequence[DeletedRow], *, no_wait: bool) -> int:
    if any(row.error is not None for row in rows):
        return Exit.FAILED
    left = [row for row in rows if not row.deleted]
    if not left or no_wait:
        return Exit.DONE
    return Exit.IN_PROGRESS if all(row.waits_for for row in left) else Exit.TIMED_OUT
