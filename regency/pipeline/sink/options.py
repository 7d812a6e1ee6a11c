"""The options of a write, checked: those of Spark's Kafka sink, and those of writing effectively once. Pure.

Names are compared without regard to case, as everywhere in Spark. What is unknown, contradictory or belongs to reading
is refused, since an option that is not read hides a mistake. docs/reference/spark-options.md shows the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from regency.model.settings.values import Boolean, nearest
from regency.model.topic_names import is_valid_topic_name
from regency.pipeline.errors import PipelineOptionInvalid
from regency.pipeline.option_table import BY_LOWER_NAME as OF_READING
from regency.pipeline.sink.settings import PREFIX, ProducerSettings, producer_settings

TOPIC: Final = "topic"
ONCE: Final = "effectivelyOnce"
ONCE_TOPICS: Final = "effectivelyOnceTopics"
FAIL_ON_CHANGED_ROWS: Final = "failOnChangedRows"
CHECKPOINT: Final = "checkpointLocation"
_INCLUDE_HEADERS: Final = "includeHeaders"
_QUERY_NAME: Final = "queryName"
_PATH: Final = "path"

WRITE_OPTIONS: Final = (TOPIC, _INCLUDE_HEADERS, ONCE, ONCE_TOPICS, FAIL_ON_CHANGED_ROWS, CHECKPOINT, _QUERY_NAME)
"""Every option of writing but kafka.*; the last two are Spark's own of streams."""
_STREAMS_ONLY: Final = (CHECKPOINT, _QUERY_NAME)
_BY_LOWER_NAME: Final = {name.lower(): name for name in WRITE_OPTIONS}


class WriteOptions(msgspec.Struct, frozen=True):
    """A write as its options tell it."""

    topic: str | None
    """The topic of all rows, whatever the column topic says; None: that column's."""
    producer: ProducerSettings
    once_topics: tuple[str, ...] = ()
    """The topics written to effectively once; none: the write is at least once."""
    fail_on_changed_rows: bool = True
    checkpoint: str | None = None
    """Of a stream that is effectively once."""

    @property
    def once(self) -> bool:
        """Whether what a repeated task or batch wrote before is not written again."""
        return bool(self.once_topics)


def write_options(options: Mapping[str, str], *, stream: bool) -> WriteOptions:
    """The options of a batch or a stream. Raises PipelineOptionInvalid with the first that is wrong."""
    given = _named(options, stream=stream)
    topic = given.get(TOPIC)
    if topic is not None:
        _check_topic(TOPIC, topic)
    _boolean(given, _INCLUDE_HEADERS, default=False)
    once = _boolean(given, ONCE, default=False)
    lower = {name.lower(): text for name, text in options.items()}
    return WriteOptions(
        topic=topic,
        producer=producer_settings(lower, once=once),
        once_topics=_once_topics(given, topic, once=once),
        fail_on_changed_rows=_fail_on_changed_rows(given, once=once),
        checkpoint=_checkpoint(given, once=once) if stream else None,
    )


def _named(options: Mapping[str, str], *, stream: bool) -> dict[str, str]:
    """The options but kafka.*, by their names as they are documented."""
    given: dict[str, str] = {}
    for name, text in options.items():
        known = _BY_LOWER_NAME.get(name.lower())
        if known is not None:
            if known in _STREAMS_ONLY and not stream:
                raise PipelineOptionInvalid(known, "it has no meaning in a batch write", hint="Remove it.")
            given[known] = text.strip()
        elif not name.lower().startswith(PREFIX):
            raise _unknown(name)
    return given


def _unknown(name: str) -> PipelineOptionInvalid:
    lower = name.lower()
    if lower in OF_READING:
        return PipelineOptionInvalid(
            OF_READING[lower].name, "it belongs to reading", hint="Where rows go is chosen with topic."
        )
    if lower == _PATH:
        return PipelineOptionInvalid(
            _PATH, "rows go to a topic, not to a path", hint="Name the topic with option topic, and call save() bare."
        )
    return PipelineOptionInvalid(
        name,
        f"there is none of that name{nearest(lower, list(_BY_LOWER_NAME))}",
        hint=f"Options are {', '.join(WRITE_OPTIONS)} and {PREFIX}*.",
    )


def _once_topics(given: Mapping[str, str], topic: str | None, *, once: bool) -> tuple[str, ...]:
    text = given.get(ONCE_TOPICS)
    if text is not None and not once:
        raise PipelineOptionInvalid(ONCE_TOPICS, f"it needs {ONCE}", hint=f"Set {ONCE} to true, or remove it.")
    if text is not None and topic is not None:
        raise PipelineOptionInvalid(
            ONCE_TOPICS, f"it contradicts {TOPIC}, which names the topic of all rows", hint="Leave one of them out."
        )
    if not once:
        return ()
    if topic is not None:
        return (topic,)
    names = tuple(dict.fromkeys(filter(None, (name.strip() for name in (text or "").split(",")))))
    if not names:
        raise PipelineOptionInvalid(
            ONCE_TOPICS,
            f"{ONCE} must know every topic before the first row",
            hint=f"Set {TOPIC}, or name all topics of the column topic here, such as a,b.",
        )
    for name in names:
        _check_topic(ONCE_TOPICS, name)
    return names


def _fail_on_changed_rows(given: Mapping[str, str], *, once: bool) -> bool:
    if FAIL_ON_CHANGED_ROWS in given and not once:
        raise PipelineOptionInvalid(FAIL_ON_CHANGED_ROWS, f"it needs {ONCE}", hint=f"Set {ONCE} to true, or remove it.")
    return _boolean(given, FAIL_ON_CHANGED_ROWS, default=True)


def _checkpoint(given: Mapping[str, str], *, once: bool) -> str | None:
    if not once:
        return None
    location = given.get(CHECKPOINT)
    if not location:
        raise PipelineOptionInvalid(
            CHECKPOINT,
            f"it is missing, and {ONCE} keeps beside it where each batch began",
            hint="Set it on this stream, also where spark.sql.streaming.checkpointLocation is set.",
        )
    return location


def _check_topic(option: str, name: str) -> None:
    if not is_valid_topic_name(name):
        raise PipelineOptionInvalid(
            option, f"{name[:300]!r} cannot be a topic's name", hint="Letters, digits, '.', '_' and '-' make one."
        )


def _boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    if name not in given:
        return default
    try:
        return bool(Boolean().parse(given[name]))
    except ValueError as error:
        raise PipelineOptionInvalid(name, f"{given[name][:200]!r}: {error}", hint="Set true or false.") from error
