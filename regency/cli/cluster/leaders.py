"""`regency leaders elect`: leader elections at once, by Kafka's ElectLeaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import msgspec

from regency.cli.asking.naming import named
from regency.cli.asking.refusals import check_partition, refusal
from regency.cli.asking.wire import ClusterWire, cluster_wire
from regency.cli.context import FILE, ID, TOPIC_NAME, Seconds, cluster_options, conclude, current, show
from regency.cli.exits import CommandFailed, Exit
from regency.kafka.apis import Message
from regency.model import znodes
from regency.model.errors import ZnodeMalformed
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode

VERSION = 2
_TYPES = {"preferred": 0, "unclean": 1}


class ElectionRow(msgspec.Struct, frozen=True):
    """What became of one partition. `leader` is None where there is none; `why` where it was not elected for."""

    topic: str
    partition: int
    result: str
    leader: int | None
    why: str | None


@click.group()
@cluster_options
def leaders() -> None:
    """Elect leaders.

    \b
    Example:
      regency leaders elect --all
    """


@leaders.command(short_help="Elect preferred leaders, or any where there is none.")
@click.argument("topic", required=False, type=TOPIC_NAME)
@click.argument("partitions", nargs=-1, type=ID)
@click.option(
    "--type",
    "election",
    type=click.Choice(list(_TYPES)),
    default="preferred",
    show_default=True,
    help="Whom: the first assigned replica; or where there is no leader, the one with the longest log.",
)
@click.option("--all", "everything", is_flag=True, help="Every partition of every topic that needs it.")
@click.option(
    "--path-to-json-file",
    "file",
    type=FILE,
    help='Partitions as in Kafka: {"partitions": [{"topic": "t", "partition": 0}]}.',
)
@click.option("--yes", is_flag=True, help="Lose what only replicas have that are dead (--type unclean).")
@click.option("--timeout", type=Seconds(0), default=15.0, show_default=True, help="Seconds to wait for the leaders.")
@cluster_options
def elect(
    topic: str | None,
    partitions: tuple[int, ...],
    election: str,
    everything: bool,
    file: Path | None,
    yes: bool,
    timeout: float,
) -> int:
    """Elect leaders of TOPIC, of its PARTITIONs, of those in a file, or of all.

    An unclean election makes a replica lead that was not in sync. What was acknowledged and is on none of the live
    replicas is lost for ever, so it must be meant: --yes.

    Exit status 0 also where no election was needed, 1 when one failed, 5 when a leader is late, 6 without --yes.

    \b
    Examples:
      regency leaders elect flights
      regency leaders elect flights 0 3
      regency leaders elect --all -o json
      regency leaders elect --path-to-json-file election.json
      regency leaders elect flights-2 --type unclean --yes
    """
    if (topic is not None) + everything + (file is not None) != 1:
        raise click.UsageError("Say one of: TOPIC, --all, --path-to-json-file FILE.")
    if election == "unclean" and not yes:
        raise CommandFailed(
            "An unclean election can lose acknowledged records.",
            hint="Say --yes if it is meant; a replica that was in sync and returns leads without it.",
            status=Exit.REFUSED,
        )
    wanted = None if file is None else _read(file)
    with cluster_wire(current().bootstrap_servers()) as wire:
        if topic is not None:
            wanted = _of_topic(wire, topic, partitions)
        ruling = BrokerId(wire.ruling().broker)
        answer = wire.ask(_request(election, wanted, timeout), VERSION, broker=ruling)
        if answer.error_code != ErrorCode.NONE:
            raise refusal("the election", answer.error_code)
        # Who answers has waited until it knows of the new leaders; another broker may not know of them yet.
        led = {
            TopicPartition(told.name, partition.partition_index): partition.leader
            for told in wire.topics([each.topic for each in answer.replica_election_results], broker=ruling)
            for partition in told.partitions
        }
    return _tell(answer, led)


def _read(file: Path) -> list[TopicPartition]:
    try:
        named = znodes.decode_preferred_election(str(file), file.read_bytes())
    except ZnodeMalformed as error:
        raise CommandFailed(str(error)) from error
    if not named:
        raise CommandFailed(f"{file} names no partitions: there is nothing to do.")
    return list(dict.fromkeys(named))


def _of_topic(wire: ClusterWire, topic: str, partitions: Sequence[int]) -> list[TopicPartition]:
    found, number = named(wire, topic)
    if not found.partitions:
        raise refusal(f"topic {topic}", found.error_code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    there = [each.partition_index for each in found.partitions]
    for partition in partitions:
        check_partition(found.name, there, partition)
    wanted = (*(() if number is None else (number,)), *partitions)
    return [TopicPartition(found.name, each) for each in dict.fromkeys(wanted or there)]


def _request(election: str, wanted: Sequence[TopicPartition] | None, timeout: float) -> Message:
    from regency.kafka.codec import ElectLeadersRequest

    topics: list[Message] | None = None
    if wanted is not None:
        numbers: dict[str, list[int]] = {}
        for each in wanted:
            numbers.setdefault(each.topic, []).append(each.partition)
        named = ElectLeadersRequest.TopicPartitions
        topics = [named(version=VERSION, topic=topic, partitions=of_topic) for topic, of_topic in numbers.items()]
    return ElectLeadersRequest(
        version=VERSION, election_type=_TYPES[election], topic_partitions=topics, timeout_ms=int(timeout * 1000)
    )


def _tell(answer: Message, led: Mapping[TopicPartition, int | None]) -> int:
    rows = [
        _row(TopicPartition(topic.topic, result.partition_id), result, led)
        for topic in answer.replica_election_results
        for result in topic.partition_result
    ]
    rows.sort(key=lambda row: (row.topic, row.partition))
    failed = [row for row in rows if row.result == "failed"]
    if rows or current().json:
        show(rows, ["topic", "partition", "result", "leader", "why"])
    else:
        conclude("No partition needs an election.")
    if any(row.result == "timed out" for row in rows):
        return Exit.TIMED_OUT
    return Exit.FAILED if failed else Exit.DONE


def _row(partition: TopicPartition, result: Message, led: Mapping[TopicPartition, int | None]) -> ElectionRow:
    outcome = {
        ErrorCode.NONE: "elected",
        ErrorCode.ELECTION_NOT_NEEDED: "not needed",
        ErrorCode.REQUEST_TIMED_OUT: "timed out",
    }.get(result.error_code, "failed")
    why = result.error_message if result.error_code != ErrorCode.NONE else None
    return ElectionRow(partition.topic, partition.partition, outcome, led.get(partition), why)
