"""`regency topics create | list | describe`, through Kafka's admin requests.

How far replicas are is asked of each of them, two requests per broker and 2,000 partitions, so that the answers are of
the same moment, whichever controller rules.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import click
import msgspec

from regency.cli.asking.config_requests import note_what_is_vain
from regency.cli.asking.missing import explained
from regency.cli.asking.naming import named, with_numbers
from regency.cli.asking.refusals import TopicMissing, check_partition
from regency.cli.asking.trouble import never_writable
from regency.cli.asking.wire import ClusterWire, PartitionFacts, TopicFacts, cluster_wire
from regency.cli.context import (
    TOPIC_NAME,
    Count,
    cluster_options,
    conclude,
    current,
    parse_pairs,
    print_json,
    say,
    show,
)
from regency.cli.exits import CommandFailed, Exit
from regency.cli.topics.alter import alter_topic, set_rf
from regency.cli.topics.delete import delete_topics
from regency.cli.topics.making import (
    BROKERS_DEFAULT,
    WantedTopic,
    create_topic,
    parse_assignment,
    settings_option,
    wait_for_leaders,
)
from regency.cli.topics.replicas import PartitionRow, ask_replicas, estimated, told_by_broker
from regency.cli.topics.truncate import truncate_topic
from regency.model.facts import MAX_PARTITIONS
from regency.model.kafka_errors import ErrorCode

_LEADERS_TIMEOUT_MS = 15_000


class TopicRow(msgspec.Struct, frozen=True):
    """A topic in `regency topics list`."""

    topic: str
    topic_id: str
    partitions: int
    replication_factor: int


class CreatedRow(msgspec.Struct, frozen=True):
    """What `regency topics create -o json` prints. `created` is false where it was there already."""

    topic: str
    topic_id: str
    partitions: int
    replication_factor: int
    created: bool


@click.group()
@cluster_options
def topics() -> None:
    """Create, alter, delete, list and describe topics."""


@topics.command(short_help="Create a topic, and wait for its leaders.")
@click.argument("name", type=TOPIC_NAME)
@click.option("--partitions", type=Count(1, MAX_PARTITIONS), help="Number of partitions.  [default: the broker's]")
@click.option("--replication-factor", type=Count(1, 32767), help="Copies of each.  [default: the broker's]")
@settings_option
@click.option("--assignment", metavar="1:2:3,2:3:1", help="Brokers of each partition, preferred leader first.")
@click.option("--if-not-exists", is_flag=True, help="Done as well when the topic is there already.")
@click.option("--no-wait", is_flag=True, help="Do not wait until every partition has a leader.")
@cluster_options
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    pairs: tuple[str, ...],
    assignment: str | None,
    if_not_exists: bool,
    no_wait: bool,
) -> None:
    """Create a topic and wait until every partition has a leader.

    Exit status 4 while not every partition has one, or a deleted topic of the name is not gone yet.

    \b
    Examples:
      regency topics create flights --partitions 6 --replication-factor 3
      regency topics create pinned --assignment 1:2,2:3,3:1 --set min.insync.replicas=2
    """
    if assignment is not None and (partitions is not None or replication_factor is not None):
        raise click.UsageError("--assignment says how many partitions and replicas; leave the numbers out.")
    wanted = WantedTopic(
        num_partitions=BROKERS_DEFAULT if partitions is None else partitions,
        replication_factor=BROKERS_DEFAULT if replication_factor is None else replication_factor,
        assignments={} if assignment is None else parse_assignment(assignment),
        configs=parse_pairs(pairs, "--set"),
    )
    servers = current().bootstrap_servers()
    with cluster_wire(servers) as wire:
        reply = create_topic(wire, servers, name, wanted)
        if reply.existed and not if_not_exists:
            raise reply.refusal
        if not no_wait:
            wait_for_leaders(servers, name, _LEADERS_TIMEOUT_MS)
        never = None if reply.existed or no_wait else never_writable(wire, name, reply.replication_factor)
        numbers = reply.num_partitions, reply.replication_factor, reply.topic_id
        if reply.existed and current().json:
            [there] = wire.topics([name])
            numbers = len(there.partitions), there.replication_factor, there.topic_id
    conclude(f"Topic {name} is there already." if reply.existed else f"Created topic {name}.")
    if not reply.existed:
        note_what_is_vain(wanted.configs)
    if never is not None:
        say(f"Warning: {never}")
    if current().json:
        partitions, replication_factor, topic_id = numbers
        print_json(CreatedRow(name, _id_text(topic_id), partitions, replication_factor, not reply.existed))


topics.add_command(alter_topic)
topics.add_command(delete_topics)
topics.add_command(set_rf)
topics.add_command(truncate_topic)


@topics.command("list")
@cluster_options
def list_topics() -> None:
    """List all topics.

    \b
    Example:
      regency topics list -o json | jq -r '.[].topic'
    """
    rows = [
        TopicRow(
            topic=each.name,
            topic_id=_id_text(each.topic_id),
            partitions=len(each.partitions),
            replication_factor=each.replication_factor,
        )
        for each in _look(None)[0]
    ]
    show(rows, ["topic", "partitions", "replication_factor", "topic_id"])


@topics.command(short_help="Show leaders, replicas, ISRs and how far each replica is.")
@click.argument("names", nargs=-1, metavar="[NAME]...", type=TOPIC_NAME)
@click.option("--under-replicated", is_flag=True, help="Only partitions of which a replica is not in sync.")
@click.option("--leaderless", is_flag=True, help="Only partitions without a leader.")
@click.option("--no-offsets", is_flag=True, help="Leave out HW, LEO and LAG, for which every broker is asked.")
@cluster_options
def describe(names: tuple[str, ...], under_replicated: bool, leaderless: bool, no_offsets: bool) -> int:
    """Show leader, epoch, replicas and ISR of each partition, of all topics or of those named, and how far they are.

    HW is the leader's high watermark. LEO, where each replica's log ends, and LAG, how many offsets that is before the
    leader's end, stand in the order of REPLICAS; all are asked of the replicas themselves, at the same time. A dash is
    a replica that cannot tell. Partitions with a replica that is not in sync and tells are asked a second time two
    seconds later: CATCH-UP is how long it takes at that rate, `no` where its lag does not shrink. Of a topic that is
    being deleted the command tells how far that is and what it waits for (exit status 4).

    \b
    Examples:
      regency topics describe flights
      regency topics describe flights-3                   or: flights 0 3
      regency topics describe --under-replicated
      regency topics describe flights -o json | jq '.[] | .positions[] | select(.lag > 1000)'
      regency topics describe --under-replicated -o json | jq '.[].positions[].catch_up.in_s'
    """
    found, missing = _look(names or None)
    rows = [_row(topic.name, partition) for topic in found for partition in topic.partitions]
    if under_replicated:
        rows = [row for row in rows if set(row.replicas) - set(row.isr)]
    if leaderless:
        rows = [row for row in rows if row.leader is None]
    columns = ["topic", "partition", "leader", "epoch", "replicas", "isr", "offline"]
    if not no_offsets and rows:
        ids = {each.name: each.topic_id for each in found if each.topic_id is not None}
        live = ask_replicas(rows, ids)
        rows = [msgspec.structs.replace(row, live=live.get(row.name, [])) for row in rows]
        columns += ["hw", "leo", "lag"]
        rows = estimated(rows, ids)
        columns += ["catch_up"] if any(replica.catch_up for row in rows for replica in row.live) else []
    if rows or not (missing or under_replicated or leaderless) or current().json:
        show(rows, columns)
    for words in told_by_broker(rows):
        conclude(words)
    if not rows and not missing and (under_replicated or leaderless):
        conclude("None: every partition has a leader." if leaderless else "None: every replica is in sync.")
    for error in missing:
        say(f"Error: {error}")
    return max((error.status for error in missing), default=Exit.DONE)


def _row(topic: str, partition: PartitionFacts) -> PartitionRow:
    epoch = partition.leader_epoch if partition.leader is not None and partition.leader_epoch >= 0 else None
    return PartitionRow(
        topic,
        partition.partition_index,
        partition.leader,
        epoch,
        partition.replica_nodes,
        partition.isr_nodes,
        partition.offline_replicas,
    )


def _look(words: Sequence[str] | None) -> tuple[list[TopicFacts], list[CommandFailed]]:
    """The topics, and what is to be said of those that are not there. Raises CommandFailed for any other error."""
    servers = current().bootstrap_servers()
    with cluster_wire(servers) as wire:
        names, chosen = (None, {}) if words is None else with_numbers(wire, words)
        topics = wire.topics(names)
        found: dict[str, TopicFacts] = {}
        missing = []
        for each in topics:
            try:
                well = each.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
                topic = each if well else _partition_of(wire, each.name)
                if each.name in chosen:
                    topic = _only(topic, chosen[each.name])
            except TopicMissing as error:
                missing.append(explained(servers, error))
                continue
            named_twice = found.get(topic.name)
            if named_twice is not None:  # a topic, and a partition of it
                every = {part.partition_index: part for part in (*named_twice.partitions, *topic.partitions)}
                topic = msgspec.structs.replace(topic, partitions=[every[number] for number in sorted(every)])
            found[topic.name] = topic
    return list(found.values()), missing


def _partition_of(wire: ClusterWire, name: str) -> TopicFacts:
    """What is named and is no topic, with one partition of a topic, if it is that. Raises CommandFailed."""
    found, number = named(wire, name)
    return found if number is None else _only(found, {number})


def _only(topic: TopicFacts, numbers: Collection[int]) -> TopicFacts:
    """The topic with these partitions alone. Raises CommandFailed where it has no such one."""
    for number in sorted(numbers):
        check_partition(topic.name, [each.partition_index for each in topic.partitions], number)
    partitions = [each for each in topic.partitions if each.partition_index in numbers]
    return msgspec.structs.replace(topic, partitions=partitions)


def _id_text(topic_id: object) -> str:
    return "-" if topic_id is None else str(topic_id)
