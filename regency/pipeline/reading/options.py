"""The options of a read, checked: what Spark's own Kafka source takes, in its names, defaults and precedence. Pure.

Names are compared without regard to case, as everywhere in Spark. What is unknown, contradictory or of the other kind
of query is refused, since an option that is not read hides a mistake. Options `kafka.*` are settings of the client, in
Kafka's names; what Spark forbids among them is forbidden here.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from regency.clients.settings import BOOTSTRAP_SERVERS, ClientSettings, SettingRefused, client_settings, is_idle
from regency.pipeline.errors import PipelineOptionInvalid
from regency.pipeline.option_table import BY_LOWER_NAME, OF_ELSEWHERE, READ_OPTIONS, Use
from regency.pipeline.reading.offsets import (
    EARLIEST,
    LATEST,
    ByPartition,
    ByTimestamp,
    Everywhere,
    Limit,
    Offsets,
    named,
    parse_offsets,
)
from regency.pipeline.reading.topic_choice import TopicChoice, topic_choice

PREFIX: Final = "kafka."

_COLUMNS = "Columns key and value are bytes; decode them with functions of Spark, such as CAST(value AS STRING)."
FORBIDDEN: Final = {
    "auto.offset.reset": (
        "where to begin is not the client's choice",
        "Set startingOffsets to earliest or latest; what to do about lost records is failOnDataLoss.",
    ),
    "key.deserializer": ("keys are always read as bytes", _COLUMNS),
    "value.deserializer": ("values are always read as bytes", _COLUMNS),
    "enable.auto.commit": (
        "offsets are kept in the checkpoint of the query, none are committed",
        "Remove it; progress is in the query's checkpoint and its progress reports.",
    ),
    "interceptor.classes": ("there is no Java client that could call interceptors", "Remove it."),
}
"""Settings that no read may have, with why and what to do, by name without the prefix."""
_SECURITY: Final = ("sasl.", "ssl.")
_PLAIN: Final = "Remove it, or reach the brokers over a network that needs no encryption, such as a tunnel."
_OF_A_GROUP: Final = ("group.id", "group.instance.id")


def read_client_settings(options: Mapping[str, str]) -> ClientSettings:
    """Settings of the options `kafka.*` among `options`, whose names are in lower case.

    Raises PipelineOptionInvalid for what is missing, forbidden, not known, malformed, or promises what there is not.
    """
    given = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
    if BOOTSTRAP_SERVERS not in given:
        raise PipelineOptionInvalid(
            PREFIX + BOOTSTRAP_SERVERS, "it is missing", hint="Name brokers of the cluster, such as localhost:9092."
        )
    for name, (reason, hint) in FORBIDDEN.items():
        if name in given:
            raise PipelineOptionInvalid(PREFIX + name, reason, hint=hint)
    for name in given:
        if name.startswith(_SECURITY):
            raise PipelineOptionInvalid(PREFIX + name, "there is no TLS and no SASL here", hint=_PLAIN)
    try:
        return client_settings(given)
    except SettingRefused as error:
        reason = error.message.removeprefix(f"{error.name}: ").rstrip(".")
        raise PipelineOptionInvalid(PREFIX + error.name, reason, hint=error.hint or _hint(error.name)) from error


def warnings_about(options: Mapping[str, str]) -> list[str]:
    """What to tell about options `kafka.*` that are taken and do nothing."""
    given = [name.removeprefix(PREFIX) for name in options if name.startswith(PREFIX)]
    idle = sorted(name for name in given if is_idle(name) and name not in _OF_A_GROUP)
    found = [f"Options without effect here: {', '.join(PREFIX + name for name in idle)}."] if idle else []
    if any(name in given for name in _OF_A_GROUP):
        found.append(
            "Option kafka.group.id has no effect: partitions are assigned by Spark alone, so there is no group; several"
            " queries may name the same."
        )
    return found


def _hint(name: str) -> str:
    return _PLAIN if name == "security.protocol" else "See docs/use/spark.md for the settings that reading knows."


_NOTHING_TO_LOOK_UP = "startingOffsetsByTimestampStrategy"
_OFFSETS_EXAMPLE = 'By partition it is such as {"t":{"0":23,"1":-2}}.'
_TIMESTAMPS_EXAMPLE = 'Expected wall milliseconds by partition, such as {"t":{"0":1700000000000}}.'


class ReadOptions(msgspec.Struct, frozen=True):
    """A read as its options tell it. None: no limit."""

    topics: TopicChoice
    client: ClientSettings
    starting: Limit
    ending: Limit
    fail_on_data_loss: bool
    include_headers: bool
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    """How long fewer than `min_offsets` may be waited for."""
    min_partitions: int | None
    max_records: int | None
    """Of one Spark partition."""
    poll_timeout_ms: int
    retries: int
    retry_interval_ms: int
    takes_filters: bool
    """filterPushdown"""
    warnings: tuple[str, ...]
    """What to tell of options that are taken and do nothing."""


def read_options(options: Mapping[str, str], *, stream: bool) -> ReadOptions:
    """The options of a batch or a stream. Raises PipelineOptionInvalid with the first that is wrong."""
    given = _named(options, stream=stream)
    value = _values(given)
    lower = {name.lower(): text for name, text in options.items()}
    client = read_client_settings(lower)
    names_client = PREFIX + "client.id" in lower
    if not names_client:
        client = msgspec.structs.replace(client, client_id=value["groupIdPrefix"])
    read = ReadOptions(
        topics=topic_choice(given),
        client=client,
        starting=_limit(given, value, "starting", LATEST if stream else EARLIEST),
        ending=_limit(given, value, "ending", LATEST),
        fail_on_data_loss=value["failOnDataLoss"],
        include_headers=value["includeHeaders"],
        max_offsets=value["maxOffsetsPerTrigger"],
        min_offsets=value["minOffsetsPerTrigger"],
        max_delay_ms=value["maxTriggerDelay"],
        min_partitions=value["minPartitions"],
        max_records=value["maxRecordsPerPartition"],
        poll_timeout_ms=value["kafkaConsumer.pollTimeoutMs"],
        retries=value["fetchOffset.numRetries"],
        retry_interval_ms=value["fetchOffset.retryIntervalMs"],
        takes_filters=value["filterPushdown"],
        warnings=(*warnings_about(lower), *_idle(given, names_client=names_client)),
    )
    _check_rates(given, read)
    if not stream:
        _check_batch(read)
    return read


def include_headers(options: Mapping[str, str]) -> bool:
    """Whether the schema has the column headers. Raises PipelineOptionInvalid."""
    given = {name.lower(): text for name, text in options.items()}.get("includeheaders", "false")
    return bool(_value("includeHeaders", given))


def _named(options: Mapping[str, str], *, stream: bool) -> dict[str, str]:
    """The options but kafka.*, by their names as they are documented."""
    given: dict[str, str] = {}
    kind = "stream" if stream else "batch"
    for name, text in options.items():
        option = BY_LOWER_NAME.get(name.lower())
        if option is not None:
            if option.use is (Use.BATCH if stream else Use.STREAM):
                raise PipelineOptionInvalid(
                    option.name,
                    f"it has no meaning in a {kind} query",
                    hint=f"Remove it; it belongs to a {option.use.value} query.",
                )
            given[option.name] = text
        elif name.lower() in OF_ELSEWHERE:
            known, reason, hint = OF_ELSEWHERE[name.lower()]
            raise PipelineOptionInvalid(known, reason, hint=hint)
        elif not name.lower().startswith(PREFIX):
            raise _unknown(name)
    return given


def _unknown(name: str) -> PipelineOptionInvalid:
    near = get_close_matches(name.lower()[:100], list(BY_LOWER_NAME), n=1, cutoff=0.6)
    suggestion = f"; did you mean {BY_LOWER_NAME[near[0]].name}?" if near else ""
    known = ", ".join(option.name for option in READ_OPTIONS)
    return PipelineOptionInvalid(
        name, f"there is none of that name{suggestion}", hint=f"Options are {known} and {PREFIX}*."
    )


def _values(given: Mapping[str, str]) -> dict[str, Any]:
    """Value of every option, the default where it is not given."""
    values: dict[str, Any] = {}
    for option in READ_OPTIONS:
        text = given.get(option.name, option.default)
        values[option.name] = _value(option.name, text) if option.name in given or text else None
    return values


def _value(name: str, text: str) -> Any:
    kind = BY_LOWER_NAME[name.lower()].kind
    try:
        return kind.parse(text.strip())
    except ValueError as error:
        raise PipelineOptionInvalid(name, f"{text[:200]!r}: {error}", hint="See docs/use/spark.md.") from error


def _limit(given: Mapping[str, str], value: Mapping[str, Any], which: str, default: int) -> Limit:
    """A timestamp for all comes first, then one for each, then offsets: Spark's precedence."""
    latest_if_none = which == "ending" or _latest_if_none(value)
    timestamp, by_timestamp, offsets = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    if timestamp in given:
        return ByTimestamp(value[timestamp], latest_if_none)
    if by_timestamp in given:
        text = given[by_timestamp]
        try:
            return ByTimestamp(parse_offsets(text, low=0), latest_if_none)
        except ValueError as error:
            raise _no_object(by_timestamp, text, "it must be a JSON object", error, _TIMESTAMPS_EXAMPLE) from error
    text = given.get(offsets, "").strip()
    if text.lower() in ("earliest", "latest", ""):
        return Everywhere({"earliest": EARLIEST, "latest": LATEST, "": default}[text.lower()])
    try:
        return ByPartition(parse_offsets(text, low=EARLIEST))
    except ValueError as error:
        expected = "it must be earliest, latest or a JSON object"
        raise _no_object(offsets, text, expected, error, _OFFSETS_EXAMPLE) from error


def _no_object(option: str, text: str, expected: str, error: ValueError, hint: str) -> PipelineOptionInvalid:
    """What is expected comes first; what is wrong in the JSON is of interest only where the text is to be some."""
    wrong = f"; {error}" if text.lstrip().startswith("{") else ""
    return PipelineOptionInvalid(option, f"{text[:200]!r}: {expected}{wrong}", hint=hint)


def _latest_if_none(value: Mapping[str, Any]) -> bool:
    text = value[_NOTHING_TO_LOOK_UP].lower()
    if text not in ("error", "latest"):
        raise PipelineOptionInvalid(_NOTHING_TO_LOOK_UP, f"{text[:200]!r} is none", hint="Expected error or latest.")
    return bool(text == "latest")


def _idle(given: Mapping[str, str], *, names_client: bool) -> list[str]:
    """What to tell of options that another one takes the place of, or that want another."""
    found = []
    for which in ("starting", "ending"):
        order = [f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"]
        first, *idle = [name for name in order if name in given] or [""]
        if idle:
            found.append(f"Option {first} takes the place of {' and '.join(idle)}.")
    if _NOTHING_TO_LOOK_UP in given and not {"startingTimestamp", "startingOffsetsByTimestamp"} & given.keys():
        found.append(f"Option {_NOTHING_TO_LOOK_UP} has no effect without a time to begin at.")
    if "groupIdPrefix" in given and names_client:
        found.append("Option kafka.client.id takes the place of groupIdPrefix.")
    return found


def _check_rates(given: Mapping[str, str], read: ReadOptions) -> None:
    if read.min_offsets is not None and read.max_offsets is not None and read.min_offsets > read.max_offsets:
        raise PipelineOptionInvalid(
            "minOffsetsPerTrigger",
            f"{read.min_offsets} is more than maxOffsetsPerTrigger, {read.max_offsets}",
            hint="A batch could never be large enough: lower the one or raise the other.",
        )
    if "maxTriggerDelay" in given and read.min_offsets is None:
        raise PipelineOptionInvalid(
            "maxTriggerDelay", "there is nothing to wait for", hint="It goes with minOffsetsPerTrigger: give that, too."
        )


def _check_batch(read: ReadOptions) -> None:
    """A batch begins somewhere and ends somewhere else: not at the latest, not at the earliest."""
    for limit, name, wrong, other in (
        (read.starting, "startingOffsets", LATEST, "latest"),
        (read.ending, "endingOffsets", EARLIEST, "earliest"),
    ):
        everywhere = isinstance(limit, Everywhere) and limit.offset == wrong
        if everywhere or (isinstance(limit, ByPartition) and wrong in limit.offsets.values()):
            raise PipelineOptionInvalid(
                name, f"{other} ({wrong}) would leave a batch nothing to read", hint="Give another place."
            )
    _check_order(read)


def _check_order(read: ReadOptions) -> None:
    starting, ending = read.starting, read.ending
    if isinstance(starting, ByPartition) and isinstance(ending, ByPartition):
        _check_each("endingOffsets", starting.offsets, ending.offsets)
    elif isinstance(starting, ByTimestamp) and isinstance(ending, ByTimestamp):
        first, last = starting.timestamps, ending.timestamps
        if isinstance(first, dict) and isinstance(last, dict):
            _check_each("endingOffsetsByTimestamp", first, last)
        elif isinstance(first, int) and isinstance(last, int) and last < first:
            raise _backwards("endingTimestamp", "the read", first, last)


def _check_each(name: str, starts: Offsets, ends: Offsets) -> None:
    if starts.keys() != ends.keys():
        odd = sorted(starts.keys() ^ ends.keys())
        raise PipelineOptionInvalid(
            name, f"it names other partitions than the start: {named(odd)}", hint="Name the same in both."
        )
    for partition, start in starts.items():
        if start >= 0 and 0 <= ends[partition] < start:
            raise _backwards(name, str(partition), start, ends[partition])


def _backwards(option: str, what: str, start: int, end: int) -> PipelineOptionInvalid:
    return PipelineOptionInvalid(
        option, f"{what} would end at {end}, before it begins at {start}", hint="Swap the two."
    )
