"""`regency consume`: prints the records of a topic. Belongs to no consumer group and commits nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

import click
import confluent_kafka
import msgspec
from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from regency.cli.asking.naming import is_perhaps_a_partition, named
from regency.cli.asking.refusals import check_partition
from regency.cli.asking.trouble import why_unread
from regency.cli.asking.wire import ANSWER_TIMEOUT_S, cluster_wire
from regency.cli.context import ID, TOPIC_NAME, Count, Seconds, cluster_options, current, say, stderr_is_terminal
from regency.cli.data.formats import as_line, describe_record, formatted, number_of, parse_format
from regency.cli.data.librdkafka import check_reachable, client_config
from regency.cli.data.starts import Offset, Start, places
from regency.cli.exits import CommandFailed, Exit
from regency.clients.topic_ends import EndsUnknown, ends_of
from regency.model.topic_names import validate_topic_name

_POLL_S = 0.2
IDLE_S = 2.0
"""When nothing came for so long, it is looked whether anything can come."""
NO_LEADER_S = 30.0
"""Longer than a leader's failover takes: partitions that had no leader all that time are not waited for."""


@click.command()
@click.argument("topic", type=TOPIC_NAME)
@click.argument("numbers", nargs=-1, type=ID, metavar="[PARTITION]...")
@click.option("--from-beginning", is_flag=True, help="Start at the oldest records.  [default: only new ones]")
@click.option("--partition", "partitions", type=ID, multiple=True, help="Only this one, as PARTITION; repeatable.")
@click.option(
    "--offset",
    "start",
    type=Offset(),
    help="Start there: N (of one partition), -N (the last N of each), @TIME (such as @10m, @14:30, "
    "@2026-05-04T14:30), beginning, end.",
)
@click.option("--max-messages", type=Count(min=1), help="End after so many.")
@click.option("--until-end", is_flag=True, help="End after the last record that is there.")
@click.option("--timeout", type=Seconds(0.1), help="End when no record came for so many seconds.")
@click.option("--key-separator", metavar="TEXT", help="Print KEY, TEXT, VALUE.  [default: the value alone]")
@click.option(
    "--format",
    "layout",
    metavar="TEXT",
    help=r"Print that: %t topic, %p partition, %o offset, %k key, %v value, %T timestamp, %h headers, %%, \n, \t.",
)
@cluster_options
def consume(
    topic: str,
    numbers: tuple[int, ...],
    from_beginning: bool,
    partitions: tuple[int, ...],
    start: Start | None,
    max_messages: int | None,
    until_end: bool,
    timeout: float | None,
    key_separator: str | None,
    layout: str | None,
) -> int:
    """Print the records of a topic until Ctrl-C, --max-messages, --until-end or --timeout; with -o json one
    object a line.

    Exit status 5 when it ended before --max-messages were there; 1 when a partition could not be read because it has
    no leader, or its leader does not answer. Without --timeout that is waited for, 30 s if it is so of all partitions.

    \b
    Examples:
      regency consume flights --from-beginning --max-messages 5
      regency consume flights --offset -10 --until-end
      regency consume flights --offset @10m --format '%p %o %T %k=%v\\n'
      regency consume flights-2 --offset 0 -o json | jq .value
    """
    partitions = (*numbers, *partitions)
    if start is not None and start.of_one and len(set(partitions)) != 1 and not is_perhaps_a_partition(topic):
        raise click.UsageError("--offset N needs exactly one partition.")
    if start is not None and from_beginning:
        raise click.UsageError("--offset and --from-beginning exclude each other.")
    if layout is not None and key_separator is not None:
        raise click.UsageError("--format and --key-separator exclude each other.")
    validate_topic_name(topic)
    printer = _printer(layout, key_separator)
    servers = current().bootstrap_servers()
    topic, chosen = _choose(servers, topic, partitions)
    if start is not None and start.of_one and len(chosen) != 1:
        raise click.UsageError("--offset N needs exactly one partition.")
    consumer = confluent_kafka.Consumer(
        {
            **client_config(servers),
            "group.id": "regency-cli",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": until_end,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
        }
    )
    try:
        check_reachable(consumer, servers)
        watch = _Watch(servers, topic, chosen)
        watch.look()  # before its offsets are asked for, which a partition without a leader does not tell
        wanted = start or (Start(OFFSET_BEGINNING) if from_beginning else Start())
        consumer.assign(places(consumer, topic, chosen, wanted))
        if start is None and not from_beginning and not until_end and stderr_is_terminal():
            say(f"Waiting for new records of {topic}; --from-beginning prints those that are there. Ctrl-C ends.")
        reader = _Reader(consumer, printer, watch, chosen, until_end=until_end)
        count = reader.run(max_messages, timeout)
    finally:
        consumer.close()
    return _verdict(watch, count, max_messages)


def _verdict(watch: _Watch, count: int, most: int | None) -> int:
    if most is not None and count >= most:
        return Exit.DONE
    watch.look()
    if watch.trouble:
        raise CommandFailed(
            f"Not everything could be read: {'; '.join(watch.trouble.values())}.",
            hint="`regency cluster health` shows what is missing.",
        )
    if most is not None:
        say(f"Only {count} of {most} records came.")
        return Exit.TIMED_OUT
    return Exit.DONE


def _choose(servers: str, topic: str, wanted: Sequence[int]) -> tuple[str, list[int]]:
    """The topic and those of its partitions that are wanted. Raises CommandFailed."""
    with cluster_wire(servers) as wire:
        found, number = named(wire, topic)
    there = [each.partition_index for each in found.partitions]
    for partition in wanted:
        check_partition(found.name, there, partition)
    return found.name, sorted({*wanted, *(() if number is None else (number,))} or there)


def _printer(layout: str | None, separator: str | None) -> Callable[[confluent_kafka.Message], None]:
    if current().json:
        return lambda message: click.echo(msgspec.json.encode(describe_record(message)))
    if layout is None:
        return lambda message: click.echo(as_line(message, separator))
    parts = parse_format(layout)
    return lambda message: click.echo(formatted(parts, message), nl=False)


class _Watch:
    """Which of the partitions cannot be read now, and why; what is new of that is said."""

    def __init__(self, servers: str, topic: str, partitions: Sequence[int]) -> None:
        self.trouble: dict[int, str] = {}
        self._servers, self._topic, self._partitions = servers, topic, partitions
        self._since: dict[int, float] = {}

    def look(self) -> None:
        """Ask the cluster; where it does not answer, what was known stays."""
        try:
            found = why_unread(self._servers, self._topic, self._partitions)
        except CommandFailed as error:
            found = dict.fromkeys(self._partitions, str(error).rstrip("."))
        new = dict.fromkeys(words for number, words in found.items() if self.trouble.get(number) != words)
        for words in new:
            say(f"Note: {words}; nothing can be read of it until that ends.")
        now = time.monotonic()
        self._since = {number: self._since.get(number, now) for number in found}
        self.trouble = found

    def hopeless(self, partitions: Collection[int]) -> bool:
        """Whether none of these could be read for so long that waiting makes no sense."""
        now = time.monotonic()
        return all(now - self._since.get(number, now) >= NO_LEADER_S for number in partitions)


class _Reader:
    """Reads these partitions and prints; with `until_end` until each has come to its end."""

    def __init__(
        self,
        consumer: confluent_kafka.Consumer,
        printer: Callable[[confluent_kafka.Message], None],
        watch: _Watch,
        partitions: Sequence[int],
        *,
        until_end: bool,
    ) -> None:
        self._consumer, self._print, self._watch = consumer, printer, watch
        self._partitions = partitions
        self._until_end = until_end
        self._ends = set(partitions) if until_end else set()
        """Whose end is still to come."""

    def run(self, most: int | None, timeout_s: float | None) -> int:
        """Print until `most`, the end, or until nothing came for `timeout_s` seconds; how many were printed."""
        count = 0
        last = looked = time.monotonic()
        while most is None or count < most:
            message = self._consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                self._print(message)
                count += 1
                last = looked = time.monotonic()
                continue
            if message is not None and self._ended(message):
                break
            now = time.monotonic()
            if timeout_s is not None and now - last >= timeout_s:
                break
            if now - looked >= IDLE_S:
                self._watch.look()
                looked = time.monotonic()
                if timeout_s is None and self._watch.hopeless(self._ends or self._partitions):
                    break
        return count

    def _ended(self, message: confluent_kafka.Message) -> bool:
        """Whether an error says that all ends are reached. Raises CommandFailed for one that does not pass."""
        error = message.error()
        assert error is not None, "a record is no error"
        if error.code() == confluent_kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001
            self._ends.discard(number_of(message.partition()))
            return self._until_end and not self._ends
        if error.retriable() or error.code() == confluent_kafka.KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            return False
        raise _unreadable(self._consumer, message, error) from KafkaException(error)


def _unreadable(
    consumer: confluent_kafka.Consumer, message: confluent_kafka.Message, error: confluent_kafka.KafkaError
) -> CommandFailed:
    """A record could not be read; says which offsets there are where another was asked for."""
    place = TopicPartition(message.topic() or "", number_of(message.partition()))
    where = f"{place.topic}-{place.partition}"
    if error.code() != confluent_kafka.KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
        return CommandFailed(f"{where}: {error.str()}.")
    try:
        low, high = ends_of(consumer, place, ANSWER_TIMEOUT_S)
    except (EndsUnknown, KafkaException) as unknown:
        why = (
            unknown.message
            if isinstance(unknown, EndsUnknown)
            else f"Its leader does not tell: {unknown.args[0].str()}."
        )
        return CommandFailed(
            f"{where} has no record at this offset.",
            hint=f"{why} `regency topics describe {place.topic}` shows who leads.",
        )
    return CommandFailed(
        f"{where} has no record at this offset.",
        hint=f"It has {low} to {high - 1}." if low < high else f"It is empty; the next is {high}.",
    )
