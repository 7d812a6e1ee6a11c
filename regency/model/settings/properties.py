"""Java's .properties syntax, in which Kafka's settings files are written.

Comments begin with # or !; key and value are separated by =, : or white space; a backslash at the end continues a line
and elsewhere escapes (t, n, r, f and uXXXX, any other character itself).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from regency.model.settings.values import SettingsInvalid

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = re.compile(r"[0-9A-Fa-f]{4}")
_LINE_END = re.compile(r"\r\n|\r|\n")


class Property(msgspec.Struct, frozen=True):
    """A key, its value, and the line it begins in, counted from 1."""

    key: str
    value: str
    line: int


def parse_properties(text: str, source: str) -> dict[str, str]:
    """Keys and values of a file's text; where a key stands twice the last one counts, as in Java.

    Raises SettingsInvalid naming `source` and every line that cannot be read.
    """
    return {entry.key: entry.value for entry in parse_property_lines(text, source)}


def parse_property_lines(text: str, source: str) -> list[Property]:
    """As parse_properties, in order, with lines, keys that stand twice included. Raises SettingsInvalid."""
    properties: list[Property] = []
    problems: list[str] = []
    for number, line in _logical_lines(text):
        try:
            properties.append(_parse_line(line, number))
        except ValueError as error:
            problems.append(f"line {number}: {error}")
    if problems:
        raise SettingsInvalid(source, problems)
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """Text that parse_properties reads as the same keys and values, in their order, one a line."""
    return "".join(f"{_escape_key(key)}={_escape_value(value)}\n" for key, value in properties.items())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blank ones, continued lines joined, each with the number of its first."""
    begun = 0
    joined = ""
    for number, raw in enumerate(_LINE_END.split(text), start=1):
        line = raw.lstrip(_BLANK)
        if not begun and (not line or line[0] in "#!"):
            continue
        begun = begun or number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield begun, joined + line
        begun, joined = 0, ""
    if begun and joined:
        yield begun, joined


def _parse_line(line: str, number: int) -> Property:
    end = 0
    while end < len(line) and line[end] not in _BLANK and line[end] not in "=:":
        end += 2 if line[end] == "\\" else 1
    key, rest = line[:end], line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    if not key:
        raise ValueError(f"{line[:80]!r} has no key before {rest[:80]!r}")
    return Property(_unescape(key), _unescape(rest), number)


def _unescape(text: str) -> str:
    parts: list[str] = []
    position = 0
    while (found := text.find("\\", position)) >= 0:
        parts.append(text[position:found])
        escaped = text[found + 1 : found + 2]
        position = found + 2
        if escaped == "u":
            digits = text[position : position + 4]
            if not _UNICODE.fullmatch(digits):
                raise ValueError(f"\\u is not followed by four hexadecimal digits but by {digits!r}")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    parts.append(text[position:])
    return _join_surrogates("".join(parts))


def _join_surrogates(text: str) -> str:
    """Characters beyond 16 bits are escaped as two halves; a half alone is no text."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise ValueError("a \\u escape is half of a character") from error


def _escape_key(key: str) -> str:
    return re.sub(r"[ =:#!]", lambda match: "\\" + match[0], _escape(key))


def _escape_value(value: str) -> str:
    escaped = _escape(value)
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _escape(text: str) -> str:
    escaped = text.replace("\\", "\\\\")
    for name, character in _ESCAPES.items():
        escaped = escaped.replace(character, "\\" + name)
    return escaped
