"""Runs a write, and finds what it wrote with a plain consumer."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.cimpl import TopicPartition

from spark_compared.cases_writing import ROWS, WriteCase
from spark_compared.records import PLANES
from spark_compared.session import REFUSALS, Session
from spark_compared.verdicts import Got, Outcome, Refused

PARTITIONS = 2
"""Of the topics that are written."""
SETTLE_S = 10.0
"""How long records may stay above the high watermark after a write with acks=1."""
ANSWER_S = 20.0


def sink_topic(connector: str) -> str:
    return f"written-by-{connector}"


def write(session: Session, connector: str, case: WriteCase) -> Outcome:
    """The records that came of it, sorted, or the refusal. Raises RuntimeError where the consumer cannot read."""
    topic = sink_topic(connector)
    expected = case.expected.kafka if connector == "kafka" else case.expected.regency
    with closing(_consumer(session.servers)) as consumer:
        before = _ends(consumer, topic)
        try:
            (_write_stream if case.stream else _write_batch)(session, connector, case)
        except REFUSALS as error:
            return Refused(str(error))
        enough = sum(before) + (expected if isinstance(expected, int) else 0)
        deadline = time.monotonic() + SETTLE_S
        while sum(_ends(consumer, topic)) < enough and time.monotonic() < deadline:
            time.sleep(0.05)
        records = _between(consumer, topic, before, _ends(consumer, topic))
    return Got(sorted((_seen(each, placed=case.placed) for each in records), key=repr))


def _write_batch(session: Session, connector: str, case: WriteCase) -> None:
    frame = session.spark.range(ROWS).selectExpr(*case.columns)
    writer = _to(session, connector, case, frame.write)
    (writer.mode(case.mode) if case.mode else writer).save()


def _write_stream(session: Session, connector: str, case: WriteCase) -> None:
    """Read by one and the same source, so that only the sinks differ."""
    frame = session.reader("regency", {"subscribe": PLANES, "startingOffsets": "earliest"}, stream=True)
    if case.counted:
        frame = frame.groupBy("partition").count()
    writer = _to(session, connector, case, frame.selectExpr(*case.columns).writeStream)
    checkpoint = session.checkpoint(f"{case.name}-{connector}".replace(" ", "-"))
    query = (
        writer.option("checkpointLocation", str(checkpoint)).outputMode(case.mode).trigger(availableNow=True).start()
    )
    query.awaitTermination()


def _to(session: Session, connector: str, case: WriteCase, writer: Any) -> Any:
    made = writer.format(connector).option("kafka.bootstrap.servers", session.servers).options(**case.options)
    return made.option("topic", sink_topic(connector)) if case.topic else made


def _consumer(servers: str) -> Consumer:
    """Of no group: partitions are assigned by hand."""
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )


def _ends(consumer: Consumer, topic: str) -> list[int]:
    return [
        consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=ANSWER_S)[1]
        for number in range(PARTITIONS)
    ]


def _between(consumer: Consumer, topic: str, starts: list[int], ends: list[int]) -> list[Any]:
    found: list[Any] = []
    for number, (at, end) in enumerate(zip(starts, ends, strict=True)):
        consumer.assign([TopicPartition(topic, number, at)])
        while at < end:
            messages = consumer.consume(min(end - at, 5000), timeout=ANSWER_S)
            if not messages:
                raise RuntimeError(f"nothing came of {topic}-{number} from offset {at} on, which ends at {end}")
            for message in messages:
                if message.error():
                    raise RuntimeError(f"{topic}-{number}: {message.error()}")
                found.append(message)
            at += len(messages)
    return found


def _seen(message: Any, *, placed: bool) -> tuple[Any, ...]:
    """The record; where it went only counts where it had to go there."""
    partition = message.partition() if placed or message.key() is not None else None
    return partition, message.key(), message.value(), tuple(message.headers() or ())
