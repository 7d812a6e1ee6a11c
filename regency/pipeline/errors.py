"""What goes wrong on the way between Spark and the cluster, both ways, in words for the author of the query."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from regency.model.errors import RegencyError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class PipelineError(RegencyError):
    """A query of `format("regency")` cannot go on."""

    code = "pipeline_error"


class PipelineOptionInvalid(PipelineError):
    """An option is unknown, does not belong here, has a value it cannot have, or contradicts another."""

    code = "pipeline_option_invalid"

    def __init__(self, option: str, reason: str, *, hint: str) -> None:
        super().__init__(f"Option {option}: {reason}{'' if reason.endswith('?') else '.'}", hint=hint)
        self.option = option


class OffsetsMalformed(PipelineError):
    """The offsets of a query's checkpoint are none of this source."""

    code = "pipeline_offsets_malformed"


class TopicUnknown(PipelineError):
    """A topic or a partition that is to be read is not there."""

    code = "pipeline_topic_unknown"


class DataLost(PipelineError):
    """Records that the query was to read are, or may be, gone. Raised only while failOnDataLoss is true."""

    code = "pipeline_data_lost"

    def __init__(self, what: str) -> None:
        super().__init__(
            what,
            hint="To go on with what is left and a warning in the log, set failOnDataLoss to false; to begin again,"
            " give the query another checkpoint.",
        )


_NO_CLASS = re.compile(r"Class \S+ not found|ClassNotFoundException|NoClassDefFoundError")


def package_hint(said: str) -> str:
    """What to do where Java `said` that it lacks a class; empty where it said something else."""
    if _NO_CLASS.search(said) is None:
        return ""
    return (
        "Spark needs the package that has this class: --conf spark.jars.packages=GROUP:NAME:VERSION"
        " (for s3a:// it is org.apache.hadoop:hadoop-aws, in the version of Spark's Hadoop)."
    )


class SinkColumnsInvalid(PipelineError):
    """The columns of the frame are not those a record is made of."""

    code = "pipeline_sink_columns_invalid"


class SinkModeRefused(PipelineError):
    """A save mode that topics cannot have: records are only ever appended."""

    code = "pipeline_sink_mode_refused"


class RowRefused(PipelineError):
    """A row says nothing a record could be made of, such as no topic."""

    code = "pipeline_row_refused"


class RowsDiffer(PipelineError):
    """A repeated task does not have the rows its earlier attempt wrote: nothing can make that once."""

    code = "pipeline_rows_differ"


class BatchBehindSink(PipelineError):
    """A batch older than one that was written whole: the checkpoint was set back."""

    code = "pipeline_batch_behind_sink"


class TailGone(PipelineError):
    """Records that an earlier attempt may have written are gone from the topic: what is missing is not known."""

    code = "pipeline_sink_tail_gone"

    def __init__(self, message: str) -> None:
        super().__init__(
            f"{message} An earlier attempt of the batch may have written them.",
            hint="Retention has to be longer than a query stands still. To go on with a stream, remove sinks/regency"
            " from its checkpoint: the batch is written whole, and readers may see rows twice.",
        )


class SinkStateUnusable(PipelineError):
    """What the sink keeps beside the checkpoint cannot be read or written."""

    code = "pipeline_sink_state_unusable"


class DeliveryFailed(PipelineError):
    """A record was not written. Names topic, partition where it is known, the broker's or the client's error.

    `servers`: the cluster as the options name it.
    """

    code = "pipeline_delivery_failed"

    def __init__(self, topic: str, partition: int, error: KafkaError, servers: str) -> None:
        where = f"{topic}-{partition}" if partition >= 0 else f"Topic {topic}"
        super().__init__(
            f"{where}: a record was not written to the cluster at {servers}: {error.str()} ({error.name()}).",
            hint=_hint(error),
        )
        self.topic = topic
        self.partition = partition
        self.error = error.name()


_HINTS = {
    "MSG_SIZE_TOO_LARGE": "Raise the topic's max.message.bytes and the option kafka.max.request.size, or write smaller"
    " rows; where rows are smaller, lower kafka.batch.size to the topic's max.message.bytes.",
    "_UNKNOWN_TOPIC": "Create the topic first: `regency topics create`.",
    "UNKNOWN_TOPIC_OR_PART": "Create the topic first: `regency topics create`.",
    "TOPIC_EXCEPTION": "The name of the topic is not valid.",
    "_UNKNOWN_PARTITION": "The column partition names a partition the topic does not have: `regency topics describe`"
    " shows them.",
    "NOT_ENOUGH_REPLICAS": "Fewer replicas are in sync than min.insync.replicas: `regency status` shows which broker is"
    " missing.",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "Fewer replicas are in sync than min.insync.replicas: `regency status` shows"
    " which broker is missing.",
    "_MSG_TIMED_OUT": "No broker accepted it within kafka.delivery.timeout.ms: `regency status` shows whether all"
    " brokers are up and partitions led and in sync.",
    "INVALID_RECORD": "The topic refuses it, as when cleanup.policy=compact meets a row without key.",
}


def _hint(error: KafkaError) -> str:
    return _HINTS.get(str(error.name()), "Spark repeats the task; `regency status` shows the state of the cluster.")
