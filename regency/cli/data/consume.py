"""`regency consume`: prints the records of a topic. Commits what it printed where it is told a group, else nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

import click
import confluent_kafka
import msgspec
from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from regency.cli.asking.naming import existing, is_perhaps_a_partition, named
from regency.cli.asking.refusals import check_partition
from regency.cli.asking.trouble import why_unread
from regency.cli.asking.wire import ANSWER_TIMEOUT_S, cluster_wire
from regency.cli.context import (
    GROUP_NAME,
    ID,
    TOPIC_NAME,
    Count,
    Seconds,
    cluster_options,
    current,
    say,
    stderr_is_terminal,
)
from regency.cli.data.formats import as_line, describe_record, formatted, number_of, parse_format
from regency.cli.data.librdkafka import check_reachable, client_config
from regency.cli.data.starts import Offset, Start, places
from regency.cli.exits import CommandFailed, Exit
from regency.cli.groups.coordinators import why_none
from regency.cli.groups.facts import EARLIEST, LATEST, offsets_at
from regency.clients.topic_ends import EndsUnknown, ends_of
from regency.model.ids import TopicPartition as Name
from regency.model.topic_names import validate_topic_name
from regency.model.words import counted

_POLL_S = 0.2
IDLE_S = 2.0
"""When nothing came for so long, it is looked whether anything can come."""
NO_LEADER_S = 30.0
"""Longer than a leader's failover takes: partitions that had no leader all that time are not waited for."""
_PASSING = (confluent_kafka.KafkaError._ALL_BROKERS_DOWN, confluent_kafka.KafkaError._MAX_POLL_EXCEEDED)  # noqa: SLF001
"""The second: printing took so long that the group went on without this member, which joins again."""
COMMIT_EVERY_MS = 1_000
"""So much is printed again at most by the next member where this one is killed."""


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
@click.option(
    "--group", type=GROUP_NAME, help="As a member of this group: it shares partitions, and commits what it printed."
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
    group: str | None,
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

    With --group several of these commands share the partitions, and go on where the group is; --from-beginning and its
    opposite are only for partitions in which it has committed nothing. What was printed is committed each second and at
    the end, also after Ctrl-C: after a kill the records of the last second are printed again.

    \b
    Examples:
      regency consume flights --from-beginning --max-messages 5
      regency consume flights --offset -10 --until-end
      regency consume flights --offset @10m --format '%p %o %T %k=%v\\n'
      regency consume flights-2 --offset 0 -o json | jq .value
      regency consume flights --group etl --from-beginning
    """
    partitions = (*numbers, *partitions)
    if group is not None and (partitions or start is not None):
        raise click.UsageError(
            "--group says which partitions, and where: leave --partition and --offset out. "
            "`regency groups reset-offsets` has a group go on somewhere else."
        )
    if start is not None and start.of_one and len(set(partitions)) != 1 and not is_perhaps_a_partition(topic):
        raise click.UsageError("--offset N needs exactly one partition.")
    if start is not None and from_beginning:
        raise click.UsageError("--offset and --from-beginning exclude each other.")
    if layout is not None and key_separator is not None:
        raise click.UsageError("--format and --key-separator exclude each other.")
    validate_topic_name(topic)
    printer = _printer(layout, key_separator)
    servers = current().bootstrap_servers()
    topic, chosen = _choose(servers, topic, partitions, whole=group is not None)
    if start is not None and start.of_one and len(chosen) != 1:
        raise click.UsageError("--offset N needs exactly one partition.")
    wanted = start or (Start(OFFSET_BEGINNING) if from_beginning else Start())
    consumer = confluent_kafka.Consumer(_config(servers, group, until_end=until_end, from_beginning=from_beginning))
    reader = None
    try:
        check_reachable(consumer, servers)
        watch = _Watch(servers, topic, chosen, group)
        watch.look()  # before its offsets are asked for, which a partition without a leader does not tell
        reader = _Reader(consumer, printer, watch, until_end=until_end, commits=group is not None)
        if group is None:
            reader.given(places(consumer, topic, chosen, wanted))
        else:

            def shared_out(_: confluent_kafka.Consumer, mine: list[TopicPartition]) -> None:
                reader.given(_begun(servers, consumer, mine, EARLIEST if from_beginning else LATEST))

            consumer.subscribe([topic], on_assign=shared_out, on_revoke=reader.taken, on_lost=reader.taken)
        if start is None and not from_beginning and not until_end and stderr_is_terminal():
            say(f"Waiting for new records of {topic}; --from-beginning prints those that are there. Ctrl-C ends.")
        count = reader.run(max_messages, timeout)
    finally:
        try:
            if group is not None and reader is not None:
                reader.commit(group)
        finally:
            consumer.close()
    return _verdict(watch, count, max_messages)


def _config(servers: str, group: str | None, *, until_end: bool, from_beginning: bool) -> dict[str, object]:
    """A client that reads what it is told, or in a group: then it commits what `store_offsets` is told."""
    reset = "error" if group is None else "earliest" if from_beginning else "latest"
    return {
        **client_config(servers),
        "group.id": "regency-cli" if group is None else group,
        "enable.auto.commit": group is not None,
        "auto.commit.interval.ms": COMMIT_EVERY_MS,
        "enable.auto.offset.store": False,
        "enable.partition.eof": until_end,
        "auto.offset.reset": reset,
        "allow.auto.create.topics": False,
    }


def _begun(
    servers: str, consumer: confluent_kafka.Consumer, mine: list[TopicPartition], start: int
) -> list[TopicPartition]:
    """Where a group goes on in these partitions: where it has committed nothing at `start`, which is committed then.

    Else what is written while the group has no members would not be read by the next one. What no leader tells is left
    to librdkafka.
    """
    places = consumer.committed(mine, timeout=ANSWER_TIMEOUT_S)
    new = {Name(each.topic, each.partition) for each in places if each.offset < 0}
    if new:
        with cluster_wire(servers) as wire:
            offsets = offsets_at(wire, new, start).offsets
        for each in places:
            each.offset = offsets.get(Name(each.topic, each.partition), each.offset)
    return places


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


def _choose(servers: str, topic: str, wanted: Sequence[int], *, whole: bool) -> tuple[str, list[int]]:
    """The topic and those of its partitions that are wanted. Raises CommandFailed, also for a part of a `whole`."""
    with cluster_wire(servers) as wire:
        found, number = (existing(wire, topic), None) if whole else named(wire, topic)
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

    def __init__(self, servers: str, topic: str, partitions: Sequence[int], group: str | None) -> None:
        self.trouble: dict[int, str] = {}
        self._servers, self._topic, self._partitions = servers, topic, partitions
        self._group = group
        self._since: dict[int, float] = {}
        self._waits_for: str | None = None

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

    def look_for_coordinator(self) -> None:
        """Say once why the group does not get going, where that is known."""
        why = None if self._group is None else why_none(self._servers, self._group)
        if why is not None and why != self._waits_for:
            say(f"Note: group {self._group} waits: {why}.")
        self._waits_for = why

    def hopeless(self, partitions: Collection[int]) -> bool:
        """Whether none of these could be read for so long that waiting makes no sense."""
        now = time.monotonic()
        return bool(partitions) and all(now - self._since.get(number, now) >= NO_LEADER_S for number in partitions)


class _Reader:
    """Reads the partitions it is given and prints; with `until_end` until each has come to its end."""

    def __init__(
        self,
        consumer: confluent_kafka.Consumer,
        printer: Callable[[confluent_kafka.Message], None],
        watch: _Watch,
        *,
        until_end: bool,
        commits: bool,
    ) -> None:
        self._consumer, self._print, self._watch = consumer, printer, watch
        self._commits = commits
        self._partitions: set[int] | None = None
        """None until it is known: in a group after each rebalance."""
        self._until_end = until_end
        self._ends: set[int] = set()
        """Whose end is still to come."""
        self._printed = 0

    def given(self, places: list[TopicPartition]) -> None:
        """These are to be read; in a group they may be none."""
        self._consumer.assign(places)
        if self._commits and (known := [each for each in places if each.offset >= 0]):
            self._consumer.store_offsets(offsets=known)
        self._partitions = {each.partition for each in places}
        self._ends = set(self._partitions) if self._until_end else set()

    def taken(self, _: confluent_kafka.Consumer, __: list[TopicPartition]) -> None:
        """They are shared out again; what was printed is committed before by librdkafka, unless they were lost."""
        self._partitions = None

    def run(self, most: int | None, timeout_s: float | None) -> int:
        """Print until `most`, the end, or until nothing came for `timeout_s` seconds; how many were printed."""
        last = looked = time.monotonic()
        while most is None or self._printed < most:
            message = self._consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                self._print(message)
                self._printed += 1
                if self._commits:
                    self._consumer.store_offsets(message)
                last = looked = time.monotonic()
                continue
            if message is not None:
                self._pass_over(message)
            if self._until_end and self._partitions is not None and not self._ends:
                break
            now = time.monotonic()
            if timeout_s is not None and now - last >= timeout_s:
                break
            if now - looked >= IDLE_S:
                self._watch.look()
                if self._partitions is None:
                    self._watch.look_for_coordinator()
                looked = time.monotonic()
                if timeout_s is None and self._watch.hopeless(self._ends or self._partitions or ()):
                    break
        return self._printed

    def commit(self, group: str) -> None:
        """Commit what was printed, and wait for it. Raises CommandFailed."""
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() != confluent_kafka.KafkaError._NO_OFFSET:  # noqa: SLF001  (all of it is committed)
                raise CommandFailed(
                    f"Of {counted(self._printed, 'record')} that were printed the last are not committed in group "
                    f"{group}: {reason.str()}.",
                    hint="They will be printed again.",
                ) from error
        say(f"Printed {counted(self._printed, 'record')}, and committed that in group {group}.")

    def _pass_over(self, message: confluent_kafka.Message) -> None:
        """Note the end of a partition. Raises CommandFailed for an error that does not pass."""
        error = message.error()
        assert error is not None, "a record is no error"
        if error.code() == confluent_kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001
            self._ends.discard(number_of(message.partition()))
        elif not error.retriable() and error.code() not in _PASSING:
            raise _unreadable(self._consumer, message, error) from KafkaException(error)


def _unreadable(
    consumer: confluent_kafka.Consumer, message: confluent_kafka.Message, error: confluent_kafka.KafkaError
) -> CommandFailed:
    """A record could not be read; says which offsets there are where another was asked for."""
    if message.topic() is None:
        return CommandFailed(f"Reading ended: {error.str()}.")
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
