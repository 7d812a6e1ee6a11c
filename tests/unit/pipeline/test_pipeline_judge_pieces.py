"""What the judge on Spark does with lines, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from regency.judge.operations import Drained, HistoryMalformed, Recreated, encode_operations
from regency.pipeline.files.history_files import Found, by_names, escaped, is_hidden, text_of, undecoded
from regency.pipeline.jobs.judge import whole_of


def test_what_concerns_the_whole_history_is_put_together() -> None:
    again = Recreated("t", 5, 9, "old", "new")
    lines = [("a", line) for line in encode_operations([Drained(7), again, Drained(3)]).splitlines()]
    whole = whole_of(False, lines)
    assert (whole.complete, whole.drained_ms, whole.recreated) == (True, 3, {"t": [again]})
    assert not whole_of(False, lines[1:2]).complete and whole_of(True, []).complete


@pytest.mark.parametrize("line", [b'{"op":"recreated","topic":"t"}', b'{"op":"drained","at_ms":"x"}'])
def test_a_malformed_one_of_them_is_told_with_its_file_and_how_it_begins(line: bytes) -> None:
    sound = encode_operations([Drained(7)])
    with pytest.raises(HistoryMalformed) as raised:
        whole_of(True, [("file:/h/a.jsonl", sound), ("file:/h/b.jsonl", line)])
    assert str(raised.value).startswith("file:/h/b.jsonl: ")
    assert f"The line begins: {line.decode()}" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("/.run/_x/a.jsonl", False),
        ("/x/_a", True),
        ("/.a", True),
        ("a._COPYING_", True),
        ("/x/a:b", True),
        ("a_b.", False),
    ],
)
def test_which_names_spark_leaves_out(name: str, hidden: bool) -> None:
    assert is_hidden(name) is hidden


def test_a_path_is_escaped_where_a_glob_would_mean_something_else() -> None:
    assert escaped("/h[1]/{a,b}*?\\") == "/h\\[1\\]/\\{a,b\\}\\*\\?\\\\"


def test_names_say_what_is_a_history() -> None:
    found = Found(["a.jsonl", "b.jsonl.bak", "c.jsonl.gz", "d"], {"_a.jsonl": "hidden", ".b": "hidden"}, ["e"])
    assert by_names(found) == Found(["a.jsonl", "c.jsonl.gz"], {"_a.jsonl": "hidden"}, [])


def test_names_that_java_does_not_find_are_known_by_its_encoding() -> None:
    assert undecoded("/h/a.jsonl", "ANSI_X3.4-1968") == undecoded("/h/ü/a.jsonl", "UTF-8") == ""
    assert "such as LC_ALL=C.UTF-8" in undecoded("/h/ü/a.jsonl", "ANSI_X3.4-1968")
    assert "ISO-8859-1" in undecoded("/h/ü.jsonl", "ISO-8859-1"), "where this Python takes names as UTF-8"
    assert undecoded("/h/ü.jsonl", "x-of-java-alone") != ""
    assert undecoded("/h/\udcff.jsonl", "UTF-8").startswith("its name is no UTF-8")


def test_no_setting_of_a_site_lets_spark_leave_out_what_it_cannot_read() -> None:
    told: list[dict[str, object]] = []

    def options(**chosen: object) -> SimpleNamespace:
        told.append(chosen)
        return SimpleNamespace(text=lambda files, **_: SimpleNamespace(inputFiles=lambda: files))

    session: Any = SimpleNamespace(read=SimpleNamespace(options=options))
    text_of(session, ["file:/a.jsonl"])
    text_of(session, ["file:/a.jsonl"], ignoreCorruptFiles=True)
    assert [(each["ignoreCorruptFiles"], each["ignoreMissingFiles"]) for each in told] == [
        (False, False),
        (True, False),
    ]
