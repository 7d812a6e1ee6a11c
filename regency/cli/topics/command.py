"""`regency topics create | list | describe`, through Kafka's admin requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

import click
import msgspec

from regency.cli.asking.config_requests import note_what_is_vain
from regency.cli.asking.deletions import refuse_if_going
from regency.cli.asking.kafka_clients import admin_client
from regency.cli.asking.refusals import refusal
from regency.cli.context import INT32_MAX, TOPIC_NAME, cluster_options, current, parse_pairs, print_json, say, show
from regency.cli.topics.alter import alter_topic, set_rf
from regency.cli.topics.delete import delete_topics
from regency.cli.topics.live import Asked, LiveReplica, ask_replicas
from regency.cli.topics.making import BROKERS_DEFAULT, WantedTopic, create_topic, refusal_of, wait_for_leaders
from regency.cli.topics.replica_lists import parse_assignment
from regency.model.ids import TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

_LEADERS_TIMEOUT_MS = 15_000


class TopicRow(msgspec.Struct, frozen=True):
    """A topic in `regency topics list`."""

    topic: str
    topic_id: str
    partitions: int
    replication_factor: int


class PartitionRow(msgspec.Struct, frozen=True):
    """A partition in `regency topics describe`. `leader` and `epoch` are None while it has no leader.

    `live` has the replicas in their order, as each of them tells; it is empty where they were not asked.
    """

    topic: str
    partition: int
    leader: int | None
    epoch: int | None
    replicas: list[int]
    isr: list[int]
    offline: list[int]
    live: list[LiveReplica] = []

    @property
    def hw(self) -> int | None:
        """The leader's high watermark."""
        return next((replica.high_watermark for replica in self.live if replica.broker == self.leader), None)

    @property
    def leo(self) -> list[str]:
        """Log ends, in the order of the replicas."""
        return ["-" if replica.log_end is None else str(replica.log_end) for replica in self.live]

    @property
    def lag(self) -> list[str]:
        """How far each is behind the leader."""
        return ["-" if replica.lag is None else str(replica.lag) for replica in self.live]


class _PartitionReply(msgspec.Struct):
    partition_index: int
    leader_id: int
    replica_nodes: list[int]
    isr_nodes: list[int]
    leader_epoch: int = -1
    offline_replicas: list[int] = []

    def row(self, topic: str) -> PartitionRow:
        led = self.leader_id >= 0
        return PartitionRow(
            topic=topic,
            partition=self.partition_index,
            leader=self.leader_id if led else None,
            epoch=self.leader_epoch if led and self.leader_epoch >= 0 else None,
            replicas=self.replica_nodes,
            isr=self.isr_nodes,
            offline=self.offline_replicas,
        )


class _TopicReply(msgspec.Struct):
    error_code: int
    name: str | None
    partitions: list[_PartitionReply] = []
    topic_id: UUID | None = None

    @property
    def replication_factor(self) -> int:
        """Replicas of the partition that has most."""
        return max((len(partition.replica_nodes) for partition in self.partitions), default=0)


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
@click.option("--partitions", type=click.IntRange(1, INT32_MAX), help="Number of partitions.  [default: the broker's]")
@click.option("--replication-factor", type=click.IntRange(1, 32767), help="Copies of each.  [default: the broker's]")
@click.option("--config", "pairs", multiple=True, metavar="KEY=VALUE", help="A setting of the topic.")
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
      regency topics create pinned --assignment 1:2,2:3,3:1 --config min.insync.replicas=2
    """
    if assignment is not None and (partitions is not None or replication_factor is not None):
        raise click.UsageError("--assignment says how many partitions and replicas; leave the numbers out.")
    wanted = WantedTopic(
        num_partitions=BROKERS_DEFAULT if partitions is None else partitions,
        replication_factor=BROKERS_DEFAULT if replication_factor is None else replication_factor,
        assignments={} if assignment is None else parse_assignment(assignment),
        configs=parse_pairs(pairs, "--config"),
    )
    servers = current().bootstrap_servers()
    with admin_client(servers) as client:
        reply = create_topic(client, servers, name, wanted)
        if reply.existed and not if_not_exists:
            raise refusal_of(reply)
        if not no_wait:
            wait_for_leaders(client, name, _LEADERS_TIMEOUT_MS)
        numbers = reply.num_partitions, reply.replication_factor, reply.topic_id
        if reply.existed and current().json:
            [there] = _convert(client.describe_topics([name]))
            numbers = len(there.partitions), there.replication_factor, there.topic_id
    say(f"Topic {name} is there already." if reply.existed else f"Created topic {name}.")
    if not reply.existed:
        note_what_is_vain(wanted.configs)
    if current().json:
        partitions, replication_factor, topic_id = numbers
        print_json(CreatedRow(name, _id_text(topic_id), partitions, replication_factor, not reply.existed))


topics.add_command(alter_topic)
topics.add_command(delete_topics)
topics.add_command(set_rf)


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
            topic=reply.name or "",
            topic_id=_id_text(reply.topic_id),
            partitions=len(reply.partitions),
            replication_factor=reply.replication_factor,
        )
        for reply in _describe(None)
    ]
    show(rows, ["topic", "partitions", "replication_factor", "topic_id"])


@topics.command(short_help="Show leaders, replicas, ISRs and how far each replica is.")
@click.argument("names", nargs=-1, metavar="[NAME]...", type=TOPIC_NAME)
@click.option("--under-replicated", is_flag=True, help="Only partitions of which a replica is not in sync.")
@click.option("--leaderless", is_flag=True, help="Only partitions that nobody leads.")
@click.option("--no-offsets", is_flag=True, help="Leave out HW, LEO and LAG, for which every broker is asked.")
@cluster_options
def describe(names: tuple[str, ...], under_replicated: bool, leaderless: bool, no_offsets: bool) -> None:
    """Show leader, epoch, replicas and ISR of each partition, of all topics or of those named, and how far they are.

    HW is the leader's high watermark. LEO, where each replica's log ends, and LAG, how many offsets that is before the
    leader's end, stand in the order of REPLICAS; all are asked of the replicas themselves, at the same time. A dash is
    a replica that cannot tell. Of a topic that is being deleted the command tells how far that is and what it waits
    for (exit status 4).

    \b
    Examples:
      regency topics describe flights
      regency topics describe --under-replicated
      regency topics describe flights -o json | jq '.[] | .live[] | select(.lag > 1000)'
    """
    replies = _describe(list(names) or None)
    rows = [
        partition.row(reply.name or "")
        for reply in replies
        for partition in sorted(reply.partitions, key=lambda found: found.partition_index)
    ]
    if under_replicated:
        rows = [row for row in rows if set(row.replicas) - set(row.isr)]
    if leaderless:
        rows = [row for row in rows if row.leader is None]
    columns = ["topic", "partition", "leader", "epoch", "replicas", "isr", "offline"]
    if not no_offsets and rows:
        rows = _with_offsets(rows, replies)
        columns += ["hw", "leo", "lag"]
    show(rows, columns)


def _with_offsets(rows: list[PartitionRow], replies: list[_TopicReply]) -> list[PartitionRow]:
    ids = {reply.name or "": TopicId(reply.topic_id) for reply in replies if reply.topic_id is not None}
    asked = [
        Asked(TopicPartition(row.topic, row.partition), -1 if row.leader is None else row.leader, row.replicas)
        for row in rows
        if row.topic in ids
    ]
    live = ask_replicas(current().bootstrap_servers(), asked, ids)
    return [msgspec.structs.replace(row, live=live.get(TopicPartition(row.topic, row.partition), [])) for row in rows]


def _describe(names: list[str] | None) -> list[_TopicReply]:
    with admin_client(current().bootstrap_servers()) as client:
        replies = _convert(client.describe_topics(names))
    for reply in replies:
        if reply.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            refuse_if_going(current().bootstrap_servers(), reply.name or "")
        if reply.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            raise refusal(f"topic {reply.name}", reply.error_code, None)
    return sorted(replies, key=lambda reply: reply.name or "")


def _convert(replies: Iterable[Mapping[str, object]]) -> list[_TopicReply]:
    return [msgspec.convert(dict(reply), _TopicReply) for reply in replies]


def _id_text(topic_id: object) -> str:
    return "-" if topic_id is None else str(topic_id)
