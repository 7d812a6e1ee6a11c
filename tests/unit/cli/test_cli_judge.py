"""`regency judge`: files in, a verdict and an exit status out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from regency.judge.operations import (
    ALL,
    Drained,
    FinalRead,
    LeaderChanged,
    Operation,
    Outcome,
    Poll,
    Run,
    Send,
    encode_operations,
)

Command = Callable[..., Result]


def sent(value: int, offset: int, *, acks: int = ALL) -> Send:
    return Send("p", 0, value, "t", 0, value, acks, True, value, value + 1, Outcome.ACKNOWLEDGED, offset)


def final(*values: int) -> FinalRead:
    return FinalRead("t", 0, 0, len(values), (Run(0, values),) if values else (), 99)


def write(path: Path, *operations: Operation) -> str:
    path.write_bytes(encode_operations(operations))
    return str(path)


def test_a_sound_history_in_two_files_is_clean(run: Command, tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", sent(0, 0), Drained(50))
    other = write(tmp_path / "other.jsonl", final(0), Poll("c", 0, 0, "t", 0, 0, 1, (Run(0, (0,)),), 60, 61))
    result = run("judge", one, other)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "The history is clean: 1 sends, 1 polls, 2 records read.\n"


def test_a_lost_write_is_told_with_status_1(run: Command, tmp_path: Path) -> None:
    result = run("judge", write(tmp_path / "h", sent(0, 0), final()))
    assert result.exit_code == 1
    assert result.stdout.startswith("lost-write: p (session 0, send 0, 0 to 1 ms)'s value 0 was acknowledged")
    assert result.stdout.endswith("The history is not clean: 1 sends, 0 polls, 0 records read; found: 1 lost-write.\n")


def test_json_has_the_whole_verdict(run: Command, tmp_path: Path) -> None:
    result = run("judge", write(tmp_path / "h", sent(0, 0), sent(1, 1), final()), "-o", "json", "--findings", "1")
    verdict = json.loads(result.stdout)
    assert (result.exit_code, verdict["counts"], len(verdict["findings"])) == (1, {"lost-write": 2}, 1)


def test_what_is_allowed_is_no_reason_to_object(run: Command, tmp_path: Path) -> None:
    result = run("judge", write(tmp_path / "h", sent(0, 0), final()), "--allow", "lost-write")
    assert (result.exit_code, "allowed: 1 lost-write" in result.stdout) == (0, True)


@pytest.mark.parametrize("acks", [1, ALL])
def test_what_producers_do_and_what_befell_decide_what_is_allowed(run: Command, tmp_path: Path, acks: int) -> None:
    """A change of leaders may lose what only the leader had promised."""
    file = write(tmp_path / "h", sent(0, 0, acks=acks), LeaderChanged("t", 0, 5), final())
    producers = tmp_path / "producers.json"
    producers.write_text(json.dumps({"t": [{"acks": acks, "idempotent": True}]}))
    assert run("judge", file).exit_code == 1
    assert run("judge", file, "--producers", str(producers)).exit_code == (0 if acks == 1 else 1)


@pytest.mark.parametrize("text", ["", "{", '[{"ack": 1}]', '[{"acks": 2}]', '{"t": {}}', "\xff"])
def test_producers_that_are_none_are_refused(run: Command, tmp_path: Path, text: str) -> None:
    producers = tmp_path / "producers.json"
    producers.write_bytes(text.encode("latin-1"))
    result = run("judge", write(tmp_path / "h"), "--producers", str(producers))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "producers.json: " in result.stderr


def test_allowances_of_two_kinds_exclude_each_other(run: Command, tmp_path: Path) -> None:
    producers = tmp_path / "producers.json"
    producers.write_text("[]")
    result = run("judge", write(tmp_path / "h"), "--producers", str(producers), "--allow", "phantom")
    assert (result.exit_code, "exclude each other" in result.stderr) == (2, True)


def test_a_line_that_is_no_operation_is_named(run: Command, tmp_path: Path) -> None:
    file = tmp_path / "torn.jsonl"
    file.write_bytes(encode_operations([sent(0, 0)]) + b'{"op":"send","cli')
    result = run("judge", str(file))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {file}: line 2 of the history is no operation: ")


def test_a_directory_is_read_with_all_below_whatever_the_names(run: Command, tmp_path: Path) -> None:
    write(tmp_path / "good.jsonl", Drained(50))
    (tmp_path / "_deep" / ".run").mkdir(parents=True)
    write(tmp_path / "_deep" / ".run" / "_bad.jsonl", sent(0, 0), final())
    write(tmp_path / "_deep" / "bad.json", sent(1, 1), final())
    result = run("judge", str(tmp_path))
    assert (result.exit_code, "found: 1 lost-write" in result.stdout) == (1, True)
    assert f"Not read, because of their names (not *.jsonl or *.jsonl.gz): {tmp_path / '_deep' / 'bad.json'}." in (
        result.stderr
    )


@pytest.mark.parametrize("content", [None, b"", b" \n\r\n\n"])
def test_a_history_without_operations_is_not_clean(run: Command, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "h.jsonl").write_bytes(content)
    result = run("judge", str(tmp_path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {tmp_path} holds no operations: there is nothing to judge.")


def test_a_torn_file_is_named(run: Command, tmp_path: Path) -> None:
    file = tmp_path / "h.jsonl.gz"
    file.write_bytes(gzip.compress(encode_operations([sent(0, 0)] * 100))[:-20])
    result = run("judge", str(file))
    assert (result.exit_code, result.stderr.startswith(f"Error: {file}: it is cut off")) == (1, True)
