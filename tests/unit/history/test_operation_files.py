"""Which files are a history by the paths given, and their lines."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from regency.history.files import file_lines, find_files, nothing_read, told_others
from regency.history.operations import HistoryMalformed, decode_operations
from regency.history.records import decode_decision

MARK = b"\xef\xbb\xbf"


def make(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(name)


def test_of_a_directory_all_histories_below_are_found_and_of_files_the_named_ones(tmp_path: Path) -> None:
    make(tmp_path, "d/a.jsonl", "d/.run/_x/b.jsonl.gz", "d/.c.jsonl", "d/e.jsonl.bak", "d/f.jsonl", "any name")
    found = find_files([tmp_path / "any name", tmp_path / "d", tmp_path / "d/f.jsonl"])
    names = {str(each.relative_to(tmp_path)) for each in found.files}
    assert names == {"any name", "d/a.jsonl", "d/.run/_x/b.jsonl.gz", "d/.c.jsonl", "d/f.jsonl"}
    assert len(found.files) == 5
    assert found.others == [tmp_path / "d/e.jsonl.bak"]
    assert find_files([tmp_path / "d", tmp_path / "d/e.jsonl.bak"]).others == []


def test_what_is_not_read_is_told(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    assert told_others([one]) == f"Not read, because of their names (not *.jsonl or *.jsonl.gz): {one}."
    assert told_others([one, other]).endswith(f": {one} and 1 more.")
    assert "a, b hold no operations" in str(nothing_read(["a", "b"]))


@pytest.mark.parametrize("name", ["x", "x.jsonl.gz"])
def test_lines_are_those_of_the_content_without_its_byte_order_mark(tmp_path: Path, name: str) -> None:
    content = MARK + b"one\n" + MARK + b"two\n\nthree"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert list(file_lines(tmp_path / name)) == [b"one\n", MARK + b"two\n", b"\n", b"three"]


WHOLE = gzip.compress(b"line\n" * 1000)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (WHOLE[:-9], "it is cut off"),
        (b"no gzip at all", "it is no gzip file, or damaged"),
        (WHOLE[:-8] + b"12345678", "it is no gzip file, or damaged"),
        (WHOLE[:12] + b"\xff" * 30, "it is no gzip file, or damaged"),
    ],
    ids=["cut off", "another kind", "a wrong length", "no data"],
)
def test_a_file_that_cannot_be_unpacked_is_an_error(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "x.gz").write_bytes(content)
    with pytest.raises(HistoryMalformed, match=why):
        list(file_lines(tmp_path / "x.gz"))


def test_brackets_without_end_are_no_record_of_any_kind() -> None:
    deep = b'{"op":"drained","at_ms":5,"new":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert decode_decision(deep) is None
    with pytest.raises(HistoryMalformed, match="line 1 of the history is no operation"):
        decode_operations([deep])
