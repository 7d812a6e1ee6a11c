"""What goes wrong on the way between Spark and the cluster, in words for the author of the query."""

from __future__ import annotations

import re

from regency.model.errors import RegencyError


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
