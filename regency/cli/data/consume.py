"""`regency consume`: prints the records of a topic. Belongs to no consumer group and commits nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click
import confluent_kafka
import msgspec
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException, TopicPartition

from regency.cli.asking.deletions import refuse_if_going
from regency.cli.asking.refusals import check_partition
from regency.cli.asking.wire import ANSWER_TIMEOUT_S
from regency.cli.context import ID, INT64_MAX, TOPIC_NAME, Seconds, cluster_options, current, encoding_of, say, spelled
from regency.cli.data.librdkafka import check_reachable, client_config
from regency.cli.exits import CommandFailed, Exit
from regency.clients.topic_ends import EndsUnknown, ends_of
from regency.model.topic_names import validate_topic_name

_POLL_S = 0.2


class ConsumedRecord(msgspec.Struct, frozen=True):
    """One line of `regency consume -o json`. What is not UTF-8 stands in base64, and `encoding` says so."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    """Milliseconds since 1970."""
    key: str | None
    value: str | None
    headers: list[tuple[str, str | None]]
    encoding: str = "utf-8"


@click.command()
@click.argument("topic", type=TOPIC_NAME)
@click.option("--from-beginning", is_flag=True, help="Start at the oldest records.  [default: only new ones]")
@click.option("--partition", "partitions", type=ID, multiple=True, help="Only this one; repeatable.")
@click.option("--offset", type=click.IntRange(0, INT64_MAX), help="Start there; needs one --partition.")
@click.option("--max-messages", type=click.IntRange(min=1), help="End after so many.")
@click.option("--timeout", type=Seconds(0.1), help="End when no record came for so many seconds.")
@click.option("--key-separator", metavar="TEXT", help="Print KEY, TEXT, VALUE.  [default: the value alone]")
@cluster_options
def consume(
    topic: str,
    from_beginning: bool,
    partitions: tuple[int, ...],
    offset: int | None,
    max_messages: int | None,
    timeout: float | None,
    key_separator: str | None,
) -> int:
    """Print the records of a topic until Ctrl-C, --max-messages or --timeout; with -o json one object a line.

    Exit status 5 when --timeout ended it before --max-messages were there.

    \b
    Examples:
      regency consume flights --from-beginning --max-messages 5
      regency consume flights --partition 2 --offset 0 -o json | jq .value
    """
    if offset is not None and len(set(partitions)) != 1:
        raise click.UsageError("--offset needs exactly one --partition.")
    if offset is not None and from_beginning:
        raise click.UsageError("--offset and --from-beginning exclude each other.")
    validate_topic_name(topic)
    servers = current().bootstrap_servers()
    consumer = confluent_kafka.Consumer(
        {
            **client_config(servers),
            "group.id": "regency-cli",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
        }
    )
    try:
        check_reachable(consumer, servers)
        start = offset if offset is not None else OFFSET_BEGINNING if from_beginning else OFFSET_END
        chosen = _choose(consumer, topic, partitions)
        consumer.assign([TopicPartition(topic, partition, start) for partition in chosen])
        count = _print_records(consumer, max_messages, timeout, key_separator)
    finally:
        consumer.close()
    if max_messages is not None and count < max_messages:
        say(f"Only {count} of {max_messages} records came.")
        return Exit.TIMED_OUT
    return Exit.DONE


def _choose(consumer: confluent_kafka.Consumer, topic: str, wanted: Sequence[int]) -> list[int]:
    found = consumer.list_topics(topic, timeout=ANSWER_TIMEOUT_S).topics[topic]
    if found.error is not None and not found.partitions:
        refuse_if_going(current().bootstrap_servers(), topic)
        raise CommandFailed(
            f"Topic {topic} cannot be read: {found.error.str()}.",
            hint=f"`regency topics list` shows what there is; `regency topics create {topic}` makes it.",
        )
    for partition in wanted:
        check_partition(topic, found.partitions, partition)
    return sorted(set(wanted or found.partitions))


def _print_records(
    consumer: confluent_kafka.Consumer, most: int | None, timeout_s: float | None, separator: str | None
) -> int:
    """Print until `most` or until nothing came for `timeout_s` seconds; how many were printed."""
    count = 0
    last = time.monotonic()
    while most is None or count < most:
        message = consumer.poll(_POLL_S)
        if message is None:
            if timeout_s is not None and time.monotonic() - last >= timeout_s:
                break
            continue
        if (error := message.error()) is not None:
            if error.retriable() or error.code() == confluent_kafka.KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
                continue
            raise _unreadable(consumer, message, error) from KafkaException(error)
        click.echo(_line(message, separator))
        count += 1
        last = time.monotonic()
    return count


def _unreadable(
    consumer: confluent_kafka.Consumer, message: confluent_kafka.Message, error: confluent_kafka.KafkaError
) -> CommandFailed:
    """A record could not be read; says which offsets there are where another was asked for."""
    place = TopicPartition(message.topic() or "", _number(message.partition()))
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


def _line(message: confluent_kafka.Message, separator: str | None) -> bytes:
    if current().json:
        return msgspec.json.encode(describe_record(message))
    value = message.value() or b""
    if separator is None:
        return bytes(value)
    return (message.key() or b"") + separator.encode() + bytes(value)


def describe_record(message: confluent_kafka.Message) -> ConsumedRecord:
    """A record as `-o json` prints it."""
    kind, timestamp = message.timestamp()
    headers = [(name, _bytes(value)) for name, value in _headers(message)]
    key, value = _bytes(message.key()), _bytes(message.value())
    encoding = encoding_of([key, value, *(content for _, content in headers)])
    return ConsumedRecord(
        topic=message.topic() or "",
        partition=_number(message.partition()),
        offset=_number(message.offset()),
        timestamp=None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp,
        key=spelled(key, encoding),
        value=spelled(value, encoding),
        headers=[(name, spelled(content, encoding)) for name, content in headers],
        encoding=encoding,
    )


def _headers(message: confluent_kafka.Message) -> list[tuple[str, str | bytes | None]]:
    headers = message.headers()
    return list(headers.items()) if isinstance(headers, dict) else list(headers or [])


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _number(value: int | None) -> int:
    return -1 if value is None else value
