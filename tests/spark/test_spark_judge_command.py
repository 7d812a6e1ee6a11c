"""`regency pipeline judge` as a command: the exit status and the verdict of `regency judge` on the same files."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from correct_log import long_run, lose_the_last

from regency.cli.main import cli
from regency.cli.schemas import output_type
from regency.judge.files import PACKED
from regency.judge.operations import Drained, FinalRead, Operation, encode_operations
from regency.pipeline.files.history_files import by_names, find_files
from regency.pipeline.jobs.cluster_history import reading

Both = Callable[..., tuple[Result, Result]]
SOUND = long_run(1)
CRC = b"crc\0" + bytes([0, 0, 2, 0]) + bytes(1000)
"""What Hadoop writes beside a file, of other content."""


def broken(topic: str) -> list[Operation]:
    """A history of a lost write in a topic of its own."""
    lost = lose_the_last(SOUND, random.Random(1))
    return [msgspec.structs.replace(each, topic=topic) for each in lost if not isinstance(each, Drained)]


def with_an_unknown_field(operation: Operation, field: str) -> bytes:
    """The same as a line, with something besides that only some parsers of JSON take."""
    return encode_operations([operation]).rstrip(b"}\n") + b"," + field.encode() + b"}\n"


def make(directory: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)


@pytest.fixture
def both(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Both:
    """What the local command and the one on Spark say; that one is given the session that is there."""
    monkeypatch.setattr("regency.cli.pipeline.spark.spark_session", lambda *_, **__: nullcontext(spark))

    def judging(*words: str | Path) -> tuple[Result, Result]:
        commands = [["judge"], ["pipeline", "judge"]]
        local, job = (CliRunner().invoke(cli, [*own, *map(str, words)], prog_name="regency") for own in commands)
        for each in (local, job):
            assert isinstance(each.exception, SystemExit | None), each.exception
        return local, job

    return judging


def test_the_verdict_is_the_same_whatever_files_and_lines_are_like(both: Both, tmp_path: Path) -> None:
    drained = next(each for each in SOUND if isinstance(each, Drained))
    odd = [each for each in broken("odd") if not isinstance(each, FinalRead)]
    final = next(each for each in broken("odd") if isinstance(each, FinalRead))
    gone = encode_operations(broken("directory"))
    many_digits, long_name = f'"new":{"1" * 1200}', f'"{"k" * 60_000}":1'
    content = {
        "h/a.jsonl": encode_operations([each for each in SOUND if each is not drained]),
        "h/.a.jsonl.crc": CRC,
        "h/ü.jsonl": encode_operations(broken("name")),
        "h/Zürich/b.jsonl.gz": gzip.compress(gone[:999]) + gzip.compress(b"") + gzip.compress(gone[999:]),
        "h/odd [1].jsonl": with_an_unknown_field(drained, many_digits)
        + with_an_unknown_field(final, long_name)
        + b"".join(with_an_unknown_field(each, many_digits) for each in odd),
        "else/x.jsonl": b"no operation\n",
        "else/where/h/c.jsonl": encode_operations(broken("parent")),
    }
    make(tmp_path, content)
    here = tmp_path / "h"
    (here / "loop").symlink_to(".")
    (here / "again.jsonl").symlink_to("a.jsonl")
    (tmp_path / "link").symlink_to("else/where")
    (tmp_path / "link to h").symlink_to("h")
    paths = [here, here / "../h", tmp_path / "link to h", tmp_path / "link/../where/h", tmp_path / "link/./h/c.jsonl"]
    local, job = both(*paths, "-o", "json", "--findings", "2")
    assert (job.exit_code, job.stdout) == (local.exit_code, local.stdout)
    verdict = json.loads(job.stdout)
    assert json.loads(msgspec.json.encode(msgspec.convert(verdict, output_type("pipeline judge")))) == verdict
    lost = {each["topic"] for each in verdict["findings"] if each["anomaly"] == "lost-write"}
    assert job.exit_code == 1 and verdict["counts"]["lost-write"] == 4 and len(lost) == 2
    assert job.stderr.replace("file:", "") == local.stderr and local.stderr.endswith("/h/.a.jsonl.crc.\n")


def test_a_clean_history_and_what_is_not_read_of_a_directory_are_told_alike(both: Both, tmp_path: Path) -> None:
    make(tmp_path, {"a.jsonl": encode_operations(SOUND), "notes\x1b.txt": b"x", "h.JSONL.GZ": b"x", "empty.jsonl": b""})
    local, job = both(tmp_path)
    assert (local.exit_code, job.exit_code, job.stdout) == (0, 0, local.stdout)
    assert job.stderr.replace("file:", "") == local.stderr
    assert "h.JSONL.GZ and 1 more." in local.stderr and local.stdout.startswith("The history is clean: 67 sends")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (b'{"op":"drained","at_ms":7', "Input data was truncated"),
        (b'{"op":"leader_changed","topic":"t","partition":9223372036854775808,"at_ms":5}', "`int` <= 2147483647"),
        (b'{"op":"leader_changed","topic":"t","partition":0,"at_ms":"\x1b[31m"}', "JSON is malformed"),
        (b'{"op":"poll\\u001b","topic":"t","partition":0,"at_ms":5}', "poll\\x1b"),
        (encode_operations([each for each in SOUND if isinstance(each, FinalRead)]), "t-0 has two final reads"),
    ],
)
def test_what_is_no_history_is_an_error_in_the_same_words(both: Both, tmp_path: Path, lines: bytes, why: str) -> None:
    make(tmp_path, {"a.jsonl": encode_operations(SOUND) + lines})
    for each in both(tmp_path, "-o", "json"):
        assert (each.exit_code, each.stdout) == (1, "")
        assert why in each.stderr and "Spark" not in each.stderr and "\x1b" not in each.stderr


@pytest.mark.parametrize("behind", [bytes(512), b"more\n", bytes(3)])
def test_what_stands_behind_compressed_data_is_an_error(both: Both, tmp_path: Path, behind: bytes) -> None:
    make(tmp_path, {"a.jsonl": encode_operations(SOUND), "b.jsonl.gz": gzip.compress(b"\n") + behind})
    for each in both(tmp_path):
        assert (each.exit_code, each.stdout) == (1, "")
        assert "b.jsonl.gz: it is no gzip file, or damaged" in each.stderr or "b.jsonl.gz: it is cut off" in each.stderr


def test_what_cannot_be_read_is_refused_by_name(both: Both, tmp_path: Path) -> None:
    sound = encode_operations(SOUND)
    make(tmp_path, {"a.jsonl": sound, "dead/a.jsonl": sound, "pipe/a.jsonl": sound})
    (tmp_path / "dead/more.jsonl").symlink_to("/nowhere/more.jsonl")
    os.mkfifo(tmp_path / "pipe/more.jsonl")
    named = [f"more{end}" for end in (*PACKED, ".jsonl.GZ", ".BZ2") if end != ".gz"]
    make(tmp_path, dict.fromkeys(named, sound))
    for path in ("dead", "pipe", *named):
        for each in both(tmp_path / "a.jsonl", tmp_path / path):
            assert (each.exit_code, each.stdout) == (1, "")
            assert "more" in each.stderr and "would not be read: it" in each.stderr


def test_what_only_java_cannot_read_is_refused_by_name(both: Both, tmp_path: Path) -> None:
    sound = encode_operations(SOUND)
    bad = os.fsdecode(b"\xff.jsonl")
    for name in (bad, "_h.jsonl", "h:1.jsonl", "h._COPYING_"):
        make(tmp_path / "d", {name: sound})
        for path in (tmp_path / "d" / name, f"{tmp_path}/[d]/*"):
            local, job = both(path) if path != f"{tmp_path}/[d]/*" else (None, both(path)[1])
            assert local is None or local.exit_code == 0
            assert (job.exit_code, job.stdout) == (1, "")
            shown = "\\xff.jsonl" if name == bad else name
            assert f"{shown} would not be read: " in job.stderr
        (tmp_path / "d" / name).unlink()


@pytest.mark.parametrize("path", ["nothing", "dead.jsonl", "", "noth*", "a.jsonl/b"])
def test_a_path_that_is_not_there_is_wrong_use(
    both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path, {"a.jsonl": encode_operations(SOUND)})
    (tmp_path / "dead.jsonl").symlink_to("/nowhere")
    for each in both("a.jsonl", path):
        assert (each.exit_code, each.stdout) == (2, "")
        assert "PATH" in each.stderr


def test_files_that_hadoop_would_unpack_are_those_that_both_refuse(spark: Any, tmp_path: Path) -> None:
    factory = spark._jvm.org.apache.hadoop.io.compress.CompressionCodecFactory
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    ends = {kind.newInstance().getDefaultExtension() for kind in factory.getCodecClasses(configuration)}
    assert ends == set(PACKED)


def test_a_glob_means_what_hadoop_means_by_it(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("a/x.jsonl", "b/x.jsonl", "b/y+.jsonl", "c/[z].jsonl", "c/ü.jsonl", ".d/x.jsonl", "e/x.jsonl/deep.jsonl")
    make(tmp_path, dict.fromkeys(names, b"x"))
    monkeypatch.chdir(tmp_path)
    for glob in ("*/x.jsonl", "{a,b}/*", "{a/x,b/y+}.jsonl", "?/[!x]*", "c/\\[z\\]*", "[a-b]/?.jsonl", "*/../b/y*"):
        statuses = spark._jvm.org.apache.hadoop.fs.FileSystem.get(
            spark.sparkContext._jsc.hadoopConfiguration()
        ).globStatus(spark._jvm.org.apache.hadoop.fs.Path(f"{tmp_path}/{glob.replace('*/../', '')}"))
        places = {each.getPath().toUri().getPath() for each in statuses}
        expected = {name for name in names for place in places if f"{tmp_path}/{name}".startswith(place)}
        for each in (glob, f"file://{tmp_path}/{glob}"):
            found = find_files(spark, [each])
            assert {name.removeprefix(f"file:{tmp_path}/") for name in found.files} == expected, glob
            assert expected and not found.unread


def test_cluster_history_tells_what_it_cannot_read_and_reads_the_rest(spark: Any, tmp_path: Path) -> None:
    bad = os.fsdecode(b"\xff.jsonl")
    make(
        tmp_path,
        {"a.jsonl": b"one\n", ".a.jsonl.crc": CRC, "ü.jsonl": b"two\n", bad: b"three\n", "_b.jsonl": b"four\n"},
    )
    (tmp_path / "dead.jsonl").symlink_to("/nowhere/x.jsonl")
    found = by_names(find_files(spark, [str(tmp_path)]))
    rows = reading.read_files(spark, found, {}).collect()
    told = {Path(each.origin).name: each.problem or bytes(each.line) for each in rows}
    assert {name for name in told if isinstance(told[name], bytes)} == {"a.jsonl", "ü.jsonl"}
    problems = {name: told[name] for name in ("_b.jsonl", "dead.jsonl", "\\xff.jsonl")}
    assert all(each.startswith("not read: ") for each in problems.values())
    assert "a link to /nowhere/x.jsonl: No such file" in problems["dead.jsonl"]
    assert len(told) == 5
