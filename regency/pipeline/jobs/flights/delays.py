"""From records of the demo's topic to delays by carrier and hour: the frames of the job flights, and nothing else."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FLIGHT = "carrier string, time_hour string, dep_delay double, arr_delay double, _malformed string"
"""What is read of a record's value. `time_hour` is text here: as a timestamp any number would pass for seconds."""
DELAYS = """
    hour timestamp, carrier string, airline string, flights bigint, cancelled bigint,
    mean_dep_delay double, max_dep_delay double, mean_arr_delay double
"""
"""Results: a row for each carrier and hour in which it had flights. Delays: minutes; null where none departed."""
INPUT, OUTPUT = "input", "output"
"""Names of the observed metrics: `rows` and `bad` of what is read, `windows` of what comes out."""

_TIME = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}"


def judged(records: DataFrame) -> DataFrame:
    """Records as `format("regency")` reads them with `place`, `flight`, `hour`, and in `wrong` why one is no flight."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  (the name everybody gives it)

    value = F.col("value").cast("string")
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": "_malformed",
        "allowNonNumericNumbers": "false",
        "allowSingleQuotes": "false",
    }
    parsed = records.select(
        F.concat_ws("", "topic", F.lit("-"), "partition", F.lit(", offset "), "offset").alias("place"),
        value.alias("text"),
        F.from_json(value, FLIGHT, options).alias("flight"),
    )
    time = F.col("flight.time_hour")
    hour = F.when(time.rlike(_TIME), F.try_to_timestamp(time))
    return parsed.withColumn("hour", hour).withColumn("wrong", _wrong())


def flights_of(records: DataFrame, *, skip_bad: bool) -> DataFrame:
    """Flights with `carrier`, `hour` and delays, of records.

    A record that is no flight ends the query with an error that begins with BAD, or is left out and counted.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    counted = judged(records).observe(INPUT, F.count(F.lit(1)).alias("rows"), F.count(F.col("wrong")).alias("bad"))
    sound = F.col("wrong").isNull()
    if not skip_bad:
        told = F.concat(F.lit(BAD), F.col("place"), F.lit(": "), F.col("wrong"), F.lit("."))
        sound = F.when(sound, F.lit(True)).otherwise(F.raise_error(told).cast("boolean"))
    return counted.filter(sound).select("flight.carrier", "hour", "flight.dep_delay", "flight.arr_delay")


BAD = "no flight: "
_TOO_MANY = 2.0**53
"""Minutes. Doubles below tell whole numbers apart, and no sum of them becomes infinite."""
_NO_OBJECT = "it is no JSON object of a flight"


def _wrong() -> Column:
    """Why a record is no flight; null where it is one."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return (
        F.when(F.col("text").isNull(), "the record has no value")
        .when(~_is_a_document(F.col("text")), _NO_OBJECT)
        .when(F.col("flight").isNull() | F.col("flight._malformed").isNotNull(), _NO_OBJECT)
        .when(~_is_countable("flight.dep_delay"), "dep_delay is too large a number")
        .when(~_is_countable("flight.arr_delay"), "arr_delay is too large a number")
        .when(F.col("flight.carrier").isNull(), "carrier is missing")
        .when(F.col("flight.time_hour").isNull(), "time_hour is missing")
        .when(F.col("hour").isNull(), "time_hour is no time such as 2013-01-01T10:00:00Z")
        # Spark's watermark begins there: hours before it count as late at once, and the first is what 0 becomes as text
        .when(F.col("hour") <= F.timestamp_seconds(F.lit(0)), "time_hour is not after 1970-01-01T00:00:00Z")
    )


def _is_a_document(text: Column) -> Column:
    """Whether a text is JSON in UTF-8, and one document: `from_json` reads the first, and passes over what follows."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    def beside(more: str) -> Column:
        return F.json_array_length(F.concat(F.lit("["), text, F.lit(f"{more}]")))

    # Who counts ends where the array does. A bracket too many ends it within the text, so that what is added is missed.
    whole = F.when(text.contains("]"), beside(",0") == 2).otherwise(F.lit(True))
    return F.is_valid_utf8(text) & F.coalesce((beside("") == 1) & whole, F.lit(False))


def _is_countable(number: str) -> Column:
    """Whether a number, or null, adds up with others. 1e400 is read as infinity, which would be its hour's mean."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.coalesce(F.abs(F.col(number)) < F.lit(_TOO_MANY), F.lit(True))


def delays_of(flights: DataFrame, airlines: DataFrame, watermark: str) -> DataFrame:
    """Rows of DELAYS, of hours that ended more than `watermark` (such as "2 days") before the latest flight."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    hours = (
        flights.withWatermark("hour", watermark)
        .groupBy(F.window("hour", "1 hour"), "carrier")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count_if(F.col("dep_delay").isNull()).alias("cancelled"),
            F.avg("dep_delay").alias("mean_dep_delay"),
            F.max("dep_delay").alias("max_dep_delay"),
            F.avg("arr_delay").alias("mean_arr_delay"),
        )
    )
    named = hours.join(F.broadcast(airlines), "carrier", "left")
    return named.select(
        F.col("window.start").alias("hour"),
        "carrier",
        "airline",
        "flights",
        "cancelled",
        "mean_dep_delay",
        "max_dep_delay",
        "mean_arr_delay",
    ).observe(OUTPUT, F.count(F.lit(1)).alias("windows"))


def records_of(delays: DataFrame) -> DataFrame:
    """Rows of DELAYS as records: the carrier as the key, the row as JSON, in one task.

    So a batch that is written again after a crash has the same rows in the same places, however many cores there are.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    value = F.to_json(F.struct(*delays.columns)).alias("value")
    return delays.coalesce(1).select(F.col("carrier").alias("key"), value)


_DAY = 86_400 * 10**6
_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 10**6,
    "minute": 60 * 10**6,
    "hour": 3_600 * 10**6,
    "day": _DAY,
    "week": 7 * _DAY,
    "month": 31 * _DAY,
    "year": 12 * 31 * _DAY,
}
"""Microseconds, as Spark counts them for a watermark."""
_PART = rf"(\d+(?:\.\d{{1,9}})?)\s+({'|'.join(_UNITS)})s?"
_WHOLE = re.compile(rf"\s*(?:interval\s+)?{_PART}(?:\s+{_PART})*\s*", re.IGNORECASE | re.ASCII)
_MOST = 2**63 - 1


def why_no_delay(said: str) -> str | None:
    """Why words are no delay of a watermark; None where they are one, such as "2 days" or "1 day 12 hours"."""
    if re.search(r"-\s*\d", said):
        return "it is negative"
    if _WHOLE.fullmatch(said) is None:
        return f"it is no number with a unit of {', '.join(_UNITS)}"
    delay = Fraction(0)
    for number, unit in re.findall(_PART, said, re.IGNORECASE | re.ASCII):
        if "." in number and unit.lower() != "second":
            return f"{number} {unit} has a fraction, which only seconds may have"
        delay += Fraction(number) * _UNITS[unit.lower()]
    return None if delay <= _MOST else "it is more than 280,000 years"
