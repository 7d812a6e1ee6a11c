"""`regency groups delete | offsets`: what is forgotten of a group, or the whole of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import click
import msgspec

from regency.cli.asking.naming import existing
from regency.cli.asking.refusals import TopicMissing, refusal
from regency.cli.asking.wire import ClusterWire, cluster_wire
from regency.cli.context import (
    GROUP_NAME,
    TOPIC_NAME,
    cluster_options,
    conclude,
    confirm,
    current,
    print_json,
    print_rows,
    say,
)
from regency.cli.exits import CommandFailed, Exit
from regency.cli.groups.coordinators import coordinated, missing
from regency.cli.groups.facts import committed, describe_group, describe_groups
from regency.kafka.apis import Message
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.words import counted, listed

_DELETE_VERSION, _OFFSETS_VERSION = 2, 0


class DeletedGroup(msgspec.Struct, frozen=True):
    """A group in what `regency groups delete -o json` prints; `error` says why it is still there."""

    group: str
    deleted: bool
    error: str | None = None


class CommittedRow(msgspec.Struct, frozen=True):
    """A committed offset, as it was committed."""

    topic: str
    partition: int
    current_offset: int
    leader_epoch: int | None
    metadata: str


class GroupOffsets(msgspec.Struct, frozen=True):
    """What `regency groups offsets -o json` prints; `deleted`: whether the offsets are gone now."""

    group: str
    deleted: bool
    offsets: list[CommittedRow]


@click.command("delete", short_help="Delete groups that have no members.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", type=GROUP_NAME)
@click.option("--yes", is_flag=True, help="Do not ask whether that is meant.")
@cluster_options
def delete_groups(names: tuple[str, ...], yes: bool) -> int:
    """Delete groups with all their offsets. Consumers that join one later begin where auto.offset.reset says.

    A group with members is refused (exit status 6): stop its consumers first. Exit status 6 also without a yes.

    \b
    Examples:
      regency groups delete etl
      regency groups delete etl reports --yes -o json
    """
    wanted = list(dict.fromkeys(names))
    told = ", ".join(wanted)
    confirm(f"Deleting {told}", f"Delete {told}, with all offsets?", yes=yes)
    with cluster_wire(current().bootstrap_servers()) as wire:
        errors = {group: why for group, error in _delete(wire, wanted).items() if (why := _why(wire, group, error))}
    for group in wanted:
        if group in errors:
            say(f"Error: {errors[group]}")
        else:
            conclude(f"Deleted group {group}.")
    if current().json:
        rows = [
            DeletedGroup(each, each not in errors, str(errors[each]) if each in errors else None) for each in wanted
        ]
        print_json(rows)
    return max((error.status for error in errors.values()), default=Exit.DONE)


def _delete(wire: ClusterWire, groups: Sequence[str]) -> dict[str, ErrorCode]:
    """What became of each. One that is gone after a request that was not answered was deleted by that."""
    from regency.kafka.codec import DeleteGroupsRequest

    unanswered: set[str] = set()

    def ask(broker: BrokerId, some: Sequence[str]) -> dict[str, tuple[int, None]]:
        request = DeleteGroupsRequest(version=_DELETE_VERSION, groups_names=list(some))
        try:
            answer = wire.ask(request, _DELETE_VERSION, broker=broker)
        except CommandFailed:
            unanswered.update(some)
            raise
        return {each.group_id: (each.error_code, None) for each in answer.results}

    told = {group: error for group, (error, _) in coordinated(wire, groups, ask).items()}
    lost = {group for group in unanswered if told[group] is ErrorCode.GROUP_ID_NOT_FOUND}
    return {group: ErrorCode.NONE if group in lost else error for group, error in told.items()}


def _why(wire: ClusterWire, group: str, error: ErrorCode) -> CommandFailed | None:
    if error is ErrorCode.NONE:
        return None
    if error is ErrorCode.GROUP_ID_NOT_FOUND:
        return missing(wire, group)
    if error is ErrorCode.NON_EMPTY_GROUP:
        return in_use(wire, group, "it is deleted")
    return refusal(f"group {group}", error)


def in_use(wire: ClusterWire, group: str, then: str) -> CommandFailed:
    """The refusal because a group has members, with who they are."""
    members = describe_groups(wire, [group])[group].members
    who = [f"{each.client_id or each.member_id} at {each.host}" for each in members]
    has = f"has {counted(len(who), 'member')} ({listed(who)})" if who else "had members"
    return CommandFailed(
        f"Group {group} {has}: {then} only while it has none.",
        hint="Stop its consumers; one that was killed is gone when its session.timeout.ms is over.",
        status=Exit.REFUSED,
    )


@click.command("offsets", short_help="Show what a group has committed; delete it of some topics.")
@click.argument("group", type=GROUP_NAME)
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", type=TOPIC_NAME)
@click.option("--delete", "deletes", is_flag=True, help="Delete the offsets of these topics.")
@click.option("--yes", is_flag=True, help="Do not ask whether that is meant.")
@cluster_options
def group_offsets(group: str, topics: tuple[str, ...], deletes: bool, yes: bool) -> int:
    """Show the offsets that GROUP has committed, of all topics or of these, with leader epoch and metadata.

    --delete deletes those of the named topics. It is refused (exit status 6) for topics that members of the group
    subscribe to. `regency groups describe` shows lag and members.

    \b
    Examples:
      regency groups offsets etl
      regency groups offsets etl flights --delete
    """
    if deletes and not topics:
        raise click.UsageError(
            "--delete needs the topics whose offsets are deleted; `regency groups delete` deletes all."
        )
    if yes and not deletes:
        raise click.UsageError("--yes goes with --delete.")
    with cluster_wire(current().bootstrap_servers()) as wire:
        describe_group(wire, group)
        found = {
            name: each for name, each in committed(wire, [group])[group].items() if not topics or name.topic in topics
        }
        _check_topics(wire, group, topics, {name.topic for name in found})
        if deletes:
            told = f"offsets of {listed(sorted(set(topics)))} in group {group}"
            confirm(f"Deleting the {told}", f"Delete the {told}?", yes=yes)
            _forget(wire, group, found)
    rows = [
        CommittedRow(name.topic, name.partition, each.offset, each.leader_epoch, each.metadata)
        for name, each in sorted(found.items())
    ]
    if current().json:
        print_json(GroupOffsets(group, deletes, rows))
    elif not deletes:
        print_rows(rows, ["topic", "partition", "current_offset", "leader_epoch", "metadata"])
    if deletes:
        conclude(f"Deleted the offsets of {counted(len(rows), 'partition')} in group {group}.")
    return Exit.DONE


def _check_topics(wire: ClusterWire, group: str, wanted: Collection[str], there: Collection[str]) -> None:
    """Raises CommandFailed for a topic that the group has nothing of."""
    for topic in wanted:
        if topic not in there:
            try:
                existing(wire, topic)
            except TopicMissing as error:
                raise TopicMissing(
                    topic, hint=f"`regency groups offsets {group}` shows of which it has any."
                ) from error
            raise CommandFailed(f"Group {group} has committed no offsets of topic {topic}.")


def _forget(wire: ClusterWire, group: str, partitions: Collection[TopicPartition]) -> None:
    from regency.kafka.codec import OffsetDeleteRequest

    topic_class = OffsetDeleteRequest.OffsetDeleteRequestTopic
    numbers: dict[str, list[int]] = {}
    for name in sorted(partitions):
        numbers.setdefault(name.topic, []).append(name.partition)
    topics = [
        topic_class(
            name=topic,
            partitions=[topic_class.OffsetDeleteRequestPartition(partition_index=number) for number in some],
        )
        for topic, some in numbers.items()
    ]
    request = OffsetDeleteRequest(version=_OFFSETS_VERSION, group_id=group, topics=topics)

    def ask(broker: BrokerId, _: Sequence[str]) -> dict[str, tuple[int, Message]]:
        answer = wire.ask(request, _OFFSETS_VERSION, broker=broker)
        return {group: (answer.error_code, answer)}

    error, answer = coordinated(wire, [group], ask)[group]
    if error is ErrorCode.GROUP_ID_NOT_FOUND:
        raise missing(wire, group)
    if error is ErrorCode.NON_EMPTY_GROUP:
        raise in_use(wire, group, "its offsets are deleted")
    if error is not ErrorCode.NONE:
        raise refusal(f"group {group}", error)
    failed = {topic.name: code for topic in answer.topics for each in topic.partitions if (code := each.error_code)}
    for topic, code in failed.items():
        if code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
            raise in_use(wire, group, f"its members subscribe to topic {topic}, whose offsets are deleted")
        raise refusal(f"offsets of topic {topic}", code)
