"""`regency log dirs | move`: the log directories of brokers, and replicas moved between them."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import click
import msgspec

from regency.cli.asking.naming import existing, named
from regency.cli.asking.refusals import refusal
from regency.cli.asking.wire import ClusterWire, cluster_wire, find
from regency.cli.context import (
    BROKER_ID,
    ID,
    TOPIC_NAME,
    Seconds,
    cluster_options,
    conclude,
    current,
    print_json,
    print_table,
    say,
)
from regency.cli.exits import CommandFailed, Exit
from regency.cli.log.dump.command import dump
from regency.kafka.apis import Message
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.words import counted, human_bytes, listed

LOOK_EVERY_S = 0.2
ALTER_VERSION = 2


@click.group()
@cluster_options
def log() -> None:
    """Look at the log directories of brokers, move replicas between them, and look into files of logs.

    \b
    Examples:
      regency log dump .run/agent-1/data/flights-0
      regency log dirs
      regency log move flights-3 --broker 1 --to /disk2/kafka
    """


@log.command(short_help="Show log directories, their sizes, and replicas that are moved.")
@click.option("--broker", "brokers", multiple=True, type=BROKER_ID, help="Only this broker; may be said several times.")
@click.option("--topic", "topics", multiple=True, type=TOPIC_NAME, help="Only logs of this topic, each in a row.")
@cluster_options
def dirs(brokers: tuple[int, ...], topics: tuple[str, ...]) -> int:
    """Show the log directories of all live brokers, or of some, as the brokers have them in memory.

    A log that is being moved is in two directories: the copy that will replace it is called future, and its lag is how
    many offsets it is behind. Exit status 3 where a directory is offline, 1 where a broker did not answer.

    \b
    Examples:
      regency log dirs
      regency log dirs --broker 1 --topic flights
      regency log dirs -o json
    """
    with cluster_wire(current().bootstrap_servers()) as wire:
        rows, silent = all_dirs(wire, [BrokerId(each) for each in brokers], frozenset(topics) or None)
        dead = [] if brokers else wire.dead_brokers()
        nowhere = bool(topics) and not any(row.logs for row in rows) and not silent
        for topic in topics if nowhere else ():
            existing(wire, topic)
    if nowhere:
        raise CommandFailed(
            f"None of these brokers has a log of {', '.join(topics)}.",
            hint="`regency topics list` shows what there is.",
        )
    if current().json:
        print_json(rows)
    else:
        _show(rows, every_log=bool(topics))
    for words in silent:
        say(f"Error: {words}")
    if dead:
        say(f"Not live, so not asked: broker {listed(dead)}.")
    offline = [f"{row.directory} of broker {row.broker}" for row in rows if row.offline]
    if offline:
        say(
            f"Offline: {', '.join(offline)}. The broker's log says why. Repair it and restart the broker, or take "
            "it out of log.dirs."
        )
    return Exit.FAILED if silent else Exit.UNHEALTHY if offline else Exit.DONE


@log.command(short_help="Move a replica to another log directory of its broker.")
@click.argument("topic", type=TOPIC_NAME)
@click.argument("partition", type=ID, required=False)
@click.option("--broker", required=True, type=BROKER_ID, help="The broker whose replica it is.")
@click.option("--to", "directory", required=True, help="One of the broker's log.dirs.")
@click.option("--timeout", type=Seconds(0), default=600.0, show_default=True, help="Seconds to wait until it is moved.")
@click.option("--no-wait", is_flag=True, help="Do not wait: it goes on by itself.")
@cluster_options
def move(topic: str, partition: int | None, broker: int, directory: str, timeout: float, no_wait: bool) -> int:
    """Move the replica of TOPIC's PARTITION on a broker to another of its log directories, while it is served.

    The log is copied, at most replica.alter.log.dirs.io.max.bytes.per.second bytes a second, and then takes the place
    of the old one, which is deleted. Naming the directory it is in already cancels a move. Exit status 5 when the time
    is over: the move goes on.

    \b
    Examples:
      regency log move flights-3 --broker 1 --to /disk2/kafka
      regency log move flights 3 --broker 1 --to /disk2/kafka --no-wait
      regency configs set broker 1 replica.alter.log.dirs.io.max.bytes.per.second=20000000
    """
    number = BrokerId(broker)
    with cluster_wire(current().bootstrap_servers()) as wire:
        name = _partition(wire, topic, partition)
        find(wire.brokers(), number)
        _ask(wire, number, name, directory)
        found = _wait(wire, number, name, directory, 0 if no_wait else timeout)
    done = found is not None and not found[1].future
    if found is not None and current().json:
        print_json(Moved(broker, found[0], done, found[1]))
    if done:
        conclude(f"{name} of broker {broker} is in {directory}.")
        return Exit.DONE
    behind = f", {counted(found[1].lag, 'offset')} to go" if found is not None and found[1].lag >= 0 else ""
    conclude(
        f"{name} of broker {broker} is being moved to {directory}{behind}; `regency log dirs` shows how far it is."
    )
    return Exit.IN_PROGRESS if no_wait else Exit.TIMED_OUT


def _partition(wire: ClusterWire, topic: str, partition: int | None) -> TopicPartition:
    """`flights 3` or `flights-3`. Raises a usage error where it is a topic alone, CommandFailed where none is there."""
    if partition is not None:
        return TopicPartition(topic, partition)
    found, number = named(wire, topic)
    if number is None:
        raise click.UsageError(f"Say which partition of {topic}, for example {topic}-0.")
    return TopicPartition(found.name, number)


def _ask(wire: ClusterWire, broker: BrokerId, name: TopicPartition, directory: str) -> None:
    """Begin the move. Raises CommandFailed saying what is in the way."""
    from regency.kafka.codec import AlterReplicaLogDirsRequest

    dir_class = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topic = dir_class.AlterReplicaLogDirTopic(name=name.topic, partitions=[name.partition])
    wanted = AlterReplicaLogDirsRequest(version=ALTER_VERSION, dirs=[dir_class(path=directory, topics=[topic])])
    answer = wire.ask(wanted, ALTER_VERSION, broker=broker)
    ((code,),) = ((each.error_code for each in result.partitions) for result in answer.results)
    match code:
        case ErrorCode.NONE:
            return
        case ErrorCode.LOG_DIR_NOT_FOUND:
            has = ", ".join(row.directory for row in broker_dirs(wire, broker, frozenset()))
            raise CommandFailed(f"Broker {broker} has no log directory {directory}; it has {has}.")
        case ErrorCode.KAFKA_STORAGE_ERROR:
            raise CommandFailed(
                f"{name} cannot be moved: {directory}, or the directory it is in, is offline on broker {broker}.",
                hint="`regency log dirs` shows which.",
            )
        case ErrorCode.REPLICA_NOT_AVAILABLE:
            raise CommandFailed(
                f"Broker {broker} has no replica of {name}.",
                hint=f"If it gets one before it is restarted, that will be made in {directory}.",
            )
        case ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise CommandFailed(f"{name} cannot be moved: its name is too long for the directory of a copy.")
        case _:
            raise refusal(str(name), code)


def _wait(
    wire: ClusterWire, broker: BrokerId, name: TopicPartition, directory: str, timeout_s: float
) -> tuple[str, LogRow] | None:
    """Where the log is, or its copy, when nothing is left to do or the time is over. Raises CommandFailed."""
    deadline = time.monotonic() + timeout_s
    while True:
        rows = broker_dirs(wire, broker, frozenset({name.topic}))
        logs = [(row.directory, log) for row in rows for log in row.logs if log.partition == name.partition]
        copy = next((each for each in logs if each[1].future), None)
        if copy is None:
            return _settled(rows, logs, name, directory)
        if time.monotonic() >= deadline:
            return copy
        time.sleep(LOOK_EVERY_S)


def _settled(
    rows: list[LogDirRow], logs: list[tuple[str, LogRow]], name: TopicPartition, directory: str
) -> tuple[str, LogRow]:
    """The log, where it was wanted. Raises CommandFailed where it is elsewhere and nothing moves it."""
    there = next((each for each in logs if each[0].rstrip("/") == directory.rstrip("/")), None)
    if there is not None:
        return there
    offline = [row.directory for row in rows if row.offline]
    why = f"{', '.join(offline)} failed" if offline else "it was cancelled, or the partition is gone"
    raise CommandFailed(f"{name} is not moved to {directory} any more: {why}.", hint="`regency log dirs` shows more.")


def _show(rows: list[LogDirRow], *, every_log: bool) -> None:
    table: list[list[object]] = [["BROKER", "DIRECTORY", "STATE", "LOGS", "FUTURE", "SIZE", "USABLE", "TOTAL"]]
    for row in rows:
        futures = sum(log.future for log in row.logs)
        held = [len(row.logs) - futures, futures, human_bytes(sum(log.size_bytes for log in row.logs))]
        volume = [None if each is None else human_bytes(each) for each in (row.usable_bytes, row.total_bytes)]
        state = ["offline", None, None, None] if row.offline else ["online", *held]
        table.append([row.broker, row.directory, *state, *volume])
    print_table(table)
    logs = [(row, log) for row in rows for log in row.logs if every_log or log.future]
    if not logs:
        return
    click.echo()
    listed: list[list[object]] = [["BROKER", "TOPIC", "PARTITION", "DIRECTORY", "SIZE", "LAG", "FUTURE"]]
    for row, log in logs:
        lag = None if log.lag < 0 else log.lag
        size = human_bytes(log.size_bytes)
        listed.append([row.broker, log.topic, log.partition, row.directory, size, lag, log.future])
    print_table(listed)


log.add_command(dump)


VERSION = 4


class LogRow(msgspec.Struct, frozen=True):
    """A log in a log directory. `lag`: of a future log, offsets behind the one it will replace; -1 not known."""

    topic: str
    partition: int
    size_bytes: int
    lag: int
    future: bool


class Moved(msgspec.Struct, frozen=True):
    """What `regency log move -o json` prints: where the log is, or the copy that will replace it."""

    broker: int
    directory: str
    moved: bool
    log: LogRow


class LogDirRow(msgspec.Struct, frozen=True):
    """A log directory in what `regency log dirs -o json` prints. Bytes of its volume are None where not known."""

    broker: int
    directory: str
    offline: bool
    usable_bytes: int | None
    total_bytes: int | None
    logs: list[LogRow]


def all_dirs(
    wire: ClusterWire, brokers: Sequence[BrokerId], topics: Collection[str] | None
) -> tuple[list[LogDirRow], list[str]]:
    """Directories of these brokers, or of all that live, and what is to be said of brokers that did not answer.

    `topics`: only logs of these; None: all. Raises CommandFailed for a broker that is named and is not live.
    """
    live = wire.brokers()
    rows: list[LogDirRow] = []
    silent: list[str] = []
    for broker in [find(live, each).id for each in brokers] or list(live):
        try:
            rows.extend(broker_dirs(wire, broker, topics))
        except CommandFailed as error:
            silent.append(f"Broker {broker}: {error}")
    return rows, silent


def broker_dirs(wire: ClusterWire, broker: BrokerId, topics: Collection[str] | None) -> list[LogDirRow]:
    """Directories of one broker. Raises CommandFailed."""
    from regency.kafka.codec import DescribeLogDirsRequest

    answer = wire.ask(DescribeLogDirsRequest(version=VERSION, topics=None), VERSION, broker=broker)
    if answer.error_code != ErrorCode.NONE:
        raise refusal(f"broker {broker}", answer.error_code)
    return [
        LogDirRow(
            broker,
            each.log_dir,
            each.error_code != ErrorCode.NONE,
            _known(each.usable_bytes),
            _known(each.total_bytes),
            sorted(_logs(each, topics), key=lambda log: (log.topic, log.partition, log.future)),
        )
        for each in sorted(answer.results, key=lambda each: str(each.log_dir))
    ]


def _logs(directory: Message, topics: Collection[str] | None) -> list[LogRow]:
    return [
        LogRow(topic.name, each.partition_index, each.partition_size, each.offset_lag, each.is_future_key)
        for topic in directory.topics
        if topics is None or topic.name in topics
        for each in topic.partitions
    ]


def _known(size: int) -> int | None:
    return None if size < 0 else size
