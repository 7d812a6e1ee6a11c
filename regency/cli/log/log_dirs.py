"""What brokers tell of their log directories, by DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from regency.cli.asking.refusals import refusal
from regency.cli.asking.wire import ClusterWire, find
from regency.cli.exits import CommandFailed
from regency.kafka.apis import Message
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode

VERSION = 4


class LogRow(msgspec.Struct, frozen=True):
    """A log in a log directory. `lag`: of a future log, offsets behind the one it will replace; -1 not known."""

    topic: str
    partition: int
    size_bytes: int
    lag: int
    future: bool


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
        raise refusal(f"broker {broker}", answer.error_code, None)
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
