"""Java's .properties syntax."""

from __future__ import annotations

import pytest

from regency.model.settings import SettingsInvalid
from regency.model.settings.properties import Property, format_properties, parse_properties, parse_property_lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\n", {"a": "1", "b": "2"}),
        ("a:1\nb : 2\nc 3\nd\t4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# x=1\n  ! y=2\n\n \t\nz=3", {"z": "3"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("list=a,\\\n   b,\\\n   # c", {"list": "a,b,# c"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("a=1\\", {"a": "1"}),
        ("\\", {}),
        ("a\\=b=c=d\nk\\ l\\:m=n", {"a=b": "c=d", "k l:m": "n"}),
        ("a==b\nc=:d", {"a": "=b", "c": ":d"}),
        ("a\nb=", {"a": "", "b": ""}),
        ("a=  x  ", {"a": "x  "}),
        ("a=\\t\\n\\r\\f\\q\\ ", {"a": "\t\n\r\fq "}),
        ("a=\\u00e9\\ud83d\\ude00é", {"a": "é😀é"}),
        ("a=1\na=2", {"a": "2"}),
        ("", {}),
    ],
)
def test_text_is_read_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text, "server.properties") == expected


def test_every_key_tells_the_line_it_begins_in() -> None:
    assert parse_property_lines("# x\na=1,\\\n2\n\nb=3\na=4", "f") == [
        Property("a", "1,2", 2),
        Property("b", "3", 5),
        Property("a", "4", 6),
    ]


def test_every_line_that_cannot_be_read_is_told_at_once() -> None:
    with pytest.raises(SettingsInvalid) as caught:
        parse_properties("a=\\u12\nb=1\n=2\nc=\\ud83d", "server.properties")
    assert caught.value.source == "server.properties"
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["line 1", "line 3", "line 4"]


def test_what_is_written_can_be_read() -> None:
    properties = {"log.dirs": "C:\\logs, /x", "#a =:b!": " \tx\n", "empty": ""}
    assert parse_properties(format_properties(properties), "f") == properties
