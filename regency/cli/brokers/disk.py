"""`regency brokers disk`: bytes by topic, room on volumes, how fast both change, and when a volume is full."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import click
import msgspec

from regency.cli.asking.disks import Directory, directories
from regency.cli.asking.rates import span
from regency.cli.asking.wire import cluster_wire
from regency.cli.context import Seconds, cluster_options, conclude, current, print_json, print_table, say
from regency.cli.exits import Exit
from regency.model.ids import BrokerId, TopicPartition
from regency.model.words import human_bytes

TIMEOUT_MS = 10_000
TOPICS_SHOWN = 20
LONG_S = 365 * 86_400.0
"""What takes longer until it is full is said to grow hardly."""
Told = Mapping[BrokerId, list[Directory] | str]


class DirectorySpace(msgspec.Struct, frozen=True):
    """A log directory of a broker; what its volume does not tell is None.

    `growth_per_s`: bytes by which the room on its volume gets less each second, whoever takes them; negative where it
    gets more, None with one look only. `full_in_s`: None where it does not grow, or that is not known.
    """

    broker: int
    directory: str
    offline: bool
    logs: int
    logs_bytes: int
    usable_bytes: int | None
    total_bytes: int | None
    used: float | None
    growth_per_s: float | None = None
    full_in_s: float | None = None


class TopicSpace(msgspec.Struct, frozen=True):
    """A topic; `copy_bytes`: the largest replica of each partition, `all_bytes`: all replicas, copies that move too."""

    topic: str
    partitions: int
    copy_bytes: int
    all_bytes: int
    growth_per_s: float | None = None
    """Of all replicas; negative where retention deletes more than is written."""


class DiskUse(msgspec.Struct, frozen=True):
    """What `regency brokers disk -o json` prints; largest topics first. `problems`: brokers that did not tell."""

    directories: list[DirectorySpace]
    topics: list[TopicSpace]
    problems: list[str] = []


@click.command("disk", short_help="Show bytes by topic, room on disks, and when one is full.")
@click.option(
    "--apart",
    type=Seconds(0),
    default=5.0,
    show_default=True,
    help="Seconds between the two looks that give growth; 0: one look, without.",
)
@cluster_options
def disk_of_brokers(apart: float) -> int:
    """Show how much room each log directory of the live brokers has, how fast it gets less, and the largest topics.

    GROWS of a directory is what its volume loses each second, whoever writes to it; GROWS of a topic what all of its
    replicas get, less what retention deletes. ONE-COPY counts one replica of each partition, ALL every replica.

    Exit status 3 where a directory is offline or a broker with replicas is not live, 1 where one did not answer within
    10 s.

    \b
    Examples:
      regency brokers disk
      regency brokers disk --apart 60
      regency brokers disk -o json | jq '.directories[] | select(.full_in_s != null and .full_in_s < 86400)'
    """
    with cluster_wire(current().bootstrap_servers()) as wire:
        nodes, dead = list(wire.brokers().values()), wire.dead_brokers()
    first, first_s = directories(nodes, logs=True, timeout_ms=TIMEOUT_MS), time.monotonic()
    second, between_s = first, 0.0
    if apart:
        time.sleep(apart)
        second = directories(nodes, logs=True, timeout_ms=TIMEOUT_MS)
        between_s = time.monotonic() - first_s
    found = disk_use(first, second, between_s)
    silent = bool(found.problems)
    gone = [f"Broker {broker} is not live: its directories and replicas are not counted" for broker in dead]
    found = msgspec.structs.replace(found, problems=[*found.problems, *gone])
    if current().json:
        print_json(found)
    else:
        _show(found)
    for words in found.problems:
        say(f"Error: {words}")
    if silent:
        return Exit.FAILED
    return Exit.UNHEALTHY if dead or any(each.offline for each in found.directories) else Exit.DONE


def disk_use(first: Told, second: Told, between_s: float) -> DiskUse:
    """From two looks so many seconds apart, or from one: then `between_s` is 0. Pure."""
    before = {(broker, each.path): each for broker, told in first.items() if not isinstance(told, str) for each in told}
    rows = [
        _space(broker, each, before.get((broker, each.path)), between_s)
        for broker, told in sorted(second.items())
        if not isinstance(told, str)
        for each in sorted(told, key=lambda each: each.path)
    ]
    problems = [
        f"Broker {broker} does not tell: {told}" for broker, told in sorted(second.items()) if isinstance(told, str)
    ]
    # a broker that told only once would look like one whose logs have come or gone
    both = [
        broker
        for broker, told in second.items()
        if not isinstance(told, str) and not isinstance(first.get(broker, ""), str)
    ]
    was, now = _by_topic(first, both), _by_topic(second, both)
    whole = _by_topic(second, list(second))
    topics = [
        TopicSpace(
            topic,
            len(sizes.largest),
            sum(sizes.largest.values()),
            sizes.total,
            (now[topic].total - was[topic].total) / between_s if between_s and topic in now and topic in was else None,
        )
        for topic, sizes in whole.items()
    ]
    return DiskUse(rows, sorted(topics, key=lambda each: (-each.all_bytes, each.topic)), problems)


def _space(broker: int, now: Directory, was: Directory | None, between_s: float) -> DirectorySpace:
    growth = None
    if between_s and was is not None and was.usable is not None and now.usable is not None:
        growth = (was.usable - now.usable) / between_s
    full_in = now.usable / growth if growth and growth > 0 and now.usable is not None else None
    size = sum(log.size for log in now.logs)
    return DirectorySpace(
        broker, now.path, now.offline, len(now.logs), size, now.usable, now.total, now.used_share, growth, full_in
    )


class _Sizes:
    """Of one topic."""

    def __init__(self) -> None:
        self.largest: dict[TopicPartition, int] = {}
        self.total = 0


def _by_topic(told: Told, brokers: Sequence[BrokerId]) -> dict[str, _Sizes]:
    found: dict[str, _Sizes] = {}
    for broker in brokers:
        some = told[broker]
        for log in () if isinstance(some, str) else (log for each in some for log in each.logs):
            sizes = found.setdefault(log.topic, _Sizes())
            sizes.total += log.size
            if not log.future:
                name = TopicPartition(log.topic, log.partition)
                sizes.largest[name] = max(log.size, sizes.largest.get(name, 0))
    return found


def _show(found: DiskUse) -> None:
    table: list[list[object]] = [["BROKER", "DIRECTORY", "STATE", "LOGS", "SIZE", "USED", "USABLE", "GROWS", "FULL"]]
    for each in found.directories:
        used = None if each.used is None else f"{each.used:.0%}"
        usable = None if each.usable_bytes is None else human_bytes(each.usable_bytes)
        known = [each.logs, human_bytes(each.logs_bytes), used, usable, _growth(each.growth_per_s), _full(each)]
        state = ["offline", *[None] * len(known)] if each.offline else ["online", *known]
        table.append([each.broker, each.directory, *state])
    print_table(table)
    click.echo()
    listed: list[list[object]] = [["TOPIC", "PARTITIONS", "ONE-COPY", "ALL", "GROWS"]]
    for topic in found.topics[:TOPICS_SHOWN]:
        sizes = [human_bytes(topic.copy_bytes), human_bytes(topic.all_bytes), _growth(topic.growth_per_s)]
        listed.append([topic.topic, topic.partitions, *sizes])
    print_table(listed)
    if len(found.topics) > TOPICS_SHOWN:
        conclude(f"and {len(found.topics) - TOPICS_SHOWN} smaller topics; -o json has all of them")


def _growth(per_s: float | None) -> str | None:
    if per_s is None:
        return None
    return f"{'-' if per_s < 0 else ''}{human_bytes(round(abs(per_s)))}/s"


def _full(each: DirectorySpace) -> str | None:
    if each.growth_per_s is None:
        return None
    if each.full_in_s is None:
        return "does not grow"
    return f"in about {span(each.full_in_s)}" if each.full_in_s < LONG_S else "not within a year"
