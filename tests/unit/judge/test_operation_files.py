"""Which files are a history by the paths given, and their lines."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from regency.history.records import decode_decision
from regency.judge.files import FilesUnreadable, file_lines, find_files, nothing_read, refuse_unread, told_others
from regency.judge.operations import HistoryMalformed, decode_operations, printable

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


def test_a_file_is_one_by_whatever_way_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "d/a.jsonl", "e/x/b.jsonl", "e/d/c.jsonl")
    (tmp_path / "d/loop").symlink_to("..")
    (tmp_path / "link").symlink_to("e/x")
    (tmp_path / "d/again.jsonl").symlink_to("a.jsonl")
    monkeypatch.chdir(tmp_path)
    ways = (Path("d/a.jsonl"), tmp_path / "d/../d/a.jsonl", Path("link/../../d/again.jsonl"), Path("d"))
    found = find_files(ways)
    assert [each.resolve().name for each in found.files] == ["a.jsonl", "c.jsonl", "b.jsonl"]
    assert found.files[0] == ways[0] and found.others == [] and found.unread == {}
    assert find_files([Path("link/../d")]).files == [Path("link/../d/c.jsonl")], "the parent of what the link leads to"


def test_what_belongs_to_a_history_and_cannot_be_read_is_found_with_the_reason(tmp_path: Path) -> None:
    make(tmp_path, "d/a.jsonl", "b.BZ2", "c.GZ", "e.gz", "f.zst.old")
    (tmp_path / "d/dead.jsonl").symlink_to("nowhere")
    (tmp_path / "d/self.jsonl").symlink_to("self.jsonl")
    (tmp_path / "d/dead.txt").symlink_to("nowhere")
    os.mkfifo(tmp_path / "d/pipe.jsonl")
    found = find_files([tmp_path / each for each in ("d", "b.BZ2", "c.GZ", "e.gz", "f.zst.old")])
    assert [each.name for each in found.files] == ["a.jsonl", "e.gz", "f.zst.old"]
    assert [each.name for each in found.others] == ["dead.txt"]
    why = {each.name: found.unread[each] for each in found.unread}
    assert why.pop("dead.jsonl") == "it is a link to nowhere: No such file or directory"
    assert why.pop("self.jsonl").startswith("it is a link to self.jsonl: ")
    assert why.pop("pipe.jsonl") == "it is a pipe, a socket or a device"
    assert set(why) == {"b.BZ2", "c.GZ"} and all("only *.gz is unpacked" in each for each in why.values())
    with pytest.raises(FilesUnreadable, match=r"dead\.jsonl would not be read: it is a link to nowhere"):
        refuse_unread(found.unread)


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
        (WHOLE + bytes(512), f"it is no gzip file, or damaged .no gzip from byte {len(WHOLE)} on"),
        (WHOLE + WHOLE[:9], "it is cut off"),
        (b"\x1f", "it is cut off"),
    ],
    ids=["cut off", "another kind", "a wrong length", "no data", "zeros behind", "half a member", "half a beginning"],
)
def test_a_file_that_cannot_be_unpacked_is_an_error(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "x.gz").write_bytes(content)
    with pytest.raises(HistoryMalformed, match=why):
        list(file_lines(tmp_path / "x.gz"))


def test_compressed_lines_of_any_length_go_on_over_members_and_chunks(tmp_path: Path) -> None:
    lines = [b"%d " % number * (number * 997 % 40_000) + b"\n" for number in range(200)]
    content = b"".join(lines)
    third = len(content) // 3
    members = (content[:third], b"", content[third : third + 1], content[third + 1 :])
    (tmp_path / "x.gz").write_bytes(b"".join(gzip.compress(each) for each in members))
    assert list(file_lines(tmp_path / "x.gz")) == lines
    (tmp_path / "x.gz").write_bytes(b"")
    assert list(file_lines(tmp_path / "x.gz")) == []


@pytest.mark.parametrize(
    "line",
    [
        b'{"op":"leader_changed","topic":"t","partition":2147483648,"at_ms":5}',
        b'{"op":"leader_changed","topic":"t","partition":-1,"at_ms":5}',
        b'{"op":"drained","at_ms":9223372036854775808}',
        b'{"op":"seek","client":"c","session":-9223372036854775809,"number":0,"topic":"t","partition":0,"at_ms":5}',
    ],
)
def test_numbers_that_no_partition_time_or_session_has_are_refused(line: bytes) -> None:
    with pytest.raises(HistoryMalformed, match=r"Expected `int` [<>]= "):
        decode_operations([line])


def test_nothing_in_an_error_steers_a_terminal() -> None:
    assert printable("ü\x1b[2J\0\n\udcff") == "ü\\x1b[2J\\x00\\n\\xff"
    with pytest.raises(HistoryMalformed) as raised:
        decode_operations([b'{"op":"\\u001b[2J"}'])
    assert "\\x1b[2J" in str(raised.value) and str(raised.value).isprintable()


def test_brackets_without_end_are_no_record_of_any_kind() -> None:
    deep = b'{"op":"drained","at_ms":5,"new":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert decode_decision(deep) is None
    with pytest.raises(HistoryMalformed, match="line 1 of the history is no operation"):
        decode_operations([deep])
