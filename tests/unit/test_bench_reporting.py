"""What the benches share: flags that are refused with a reason, percentiles, medians, the file with the figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import reporting


@pytest.fixture
def _named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["tests/bench/bench_broker_death.py"])


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--runs", "0"], "argument --runs: '0' is not a whole number from 1 on"),
        (["--runs", "two"], "argument --runs: 'two' is not a whole number from 1 on"),
        (["--json", "/no/such/directory/file"], "there is no directory /no/such/directory"),
        (["--json", "/"], "argument --json: '/' is a directory"),
        (["--length", "-1"], "argument --length: '-1' is not a number of seconds above 0"),
        (["--length", "nan"], "argument --length: 'nan' is not a number of seconds above 0"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
@pytest.mark.usefixtures("_named")
def test_a_bad_flag_is_refused_by_name_before_anything_starts(
    flags: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = reporting.parser("A bench.", runs=3)
    options.add_argument("--length", type=reporting.seconds)
    with pytest.raises(SystemExit) as ended:
        options.parse_args(flags)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert why in said
    assert "./dev bench broker-death: error:" in said


@pytest.mark.usefixtures("_named")
def test_a_failed_bench_says_why_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise TimeoutError("every ISR full again did not happen within 600 s")

    assert reporting.run(fail) == 1
    assert capsys.readouterr().err == "bench broker-death: every ISR full again did not happen within 600 s\n"


def test_a_percentile_is_the_value_that_so_many_do_not_exceed() -> None:
    ordered = [float(number) for number in range(1, 101)]
    assert [reporting.percentile(ordered, percent) for percent in (0, 50, 99, 99.9, 100)] == [1, 50, 99, 100, 100]
    assert reporting.percentile([7.0], 99) == 7


@pytest.mark.usefixtures("_named")
def test_the_file_holds_the_median_of_each_figure_and_every_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [{"p50_ms": 3.0, "p99_ms": 9.0}, {"p50_ms": 1.0, "p99_ms": 30.0}, {"p50_ms": 2.0, "p99_ms": 10.0}]
    file = tmp_path / "figures.json"
    reporting.write_report(file, {"partitions": 6, "json": file}, reporting.medians(runs), runs)
    written = json.loads(file.read_text())
    assert written.pop("machine").keys() == {"cores", "machine", "python", "load_before"}
    assert written == {
        "bench": "broker-death",
        "params": {"partitions": 6},
        "results": {"p50_ms": 2.0, "p99_ms": 10.0},
        "runs": runs,
    }
    assert capsys.readouterr().out == "p50_ms=2.0 p99_ms=10.0\n"
