"""Records as lines: the value alone, key and value, JSON, or what `--format` says."""

from __future__ import annotations

import re
from collections.abc import Callable

import click
import confluent_kafka
import msgspec

from regency.cli.context import encoding_of, spelled

_TOKENS = re.compile(r"%(.)|\\(.)|%$|\\$", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_FIELDS: dict[str, Callable[[confluent_kafka.Message], bytes]] = {
    "t": lambda message: (message.topic() or "").encode(),
    "p": lambda message: b"%d" % number_of(message.partition()),
    "o": lambda message: b"%d" % number_of(message.offset()),
    "k": lambda message: _bytes(message.key()) or b"",
    "v": lambda message: _bytes(message.value()) or b"",
    "s": lambda message: _bytes(message.value()) or b"",
    "T": lambda message: b"%d" % message.timestamp()[1],
    "h": lambda message: b",".join(name.encode() + b"=" + (_bytes(value) or b"") for name, value in _headers(message)),
    "%": lambda _: b"%",
}


class ConsumedRecord(msgspec.Struct, frozen=True):
    """One line of `regency consume -o json`. What is not UTF-8 stands in base64, and `encoding` says so."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    """Milliseconds since 1970."""
    key: str | None
    value: str | None
    headers: list[tuple[str, str | None]]
    encoding: str = "utf-8"


def parse_format(text: str) -> list[bytes | Callable[[confluent_kafka.Message], bytes]]:
    """Literal parts and fields, in order. Raises a usage error naming what is no field."""
    parts: list[bytes | Callable[[confluent_kafka.Message], bytes]] = []
    at = 0
    for token in _TOKENS.finditer(text):
        parts.append(text[at : token.start()].encode())
        at = token.end()
        field, escape = token.groups()
        known = _FIELDS.get(field) if field is not None else _ESCAPES.get(escape or "")
        if known is None:
            raise click.BadParameter(
                f"{token[0]!r} is none of %t %p %o %k %v %s %T %h %% \\n \\t \\r \\0 \\\\.", param_hint="--format"
            )
        parts.append(known)
    return [*parts, text[at:].encode()]


def formatted(
    parts: list[bytes | Callable[[confluent_kafka.Message], bytes]], message: confluent_kafka.Message
) -> bytes:
    """The record in that format; no end of line but where the format has one."""
    return b"".join(part if isinstance(part, bytes) else part(message) for part in parts)


def as_line(message: confluent_kafka.Message, separator: str | None) -> bytes:
    """The value, after the key where a separator is given."""
    value = _bytes(message.value()) or b""
    return value if separator is None else (_bytes(message.key()) or b"") + separator.encode() + value


def describe_record(message: confluent_kafka.Message) -> ConsumedRecord:
    """A record as `-o json` prints it."""
    kind, timestamp = message.timestamp()
    headers = [(name, _bytes(value)) for name, value in _headers(message)]
    key, value = _bytes(message.key()), _bytes(message.value())
    encoding = encoding_of([key, value, *(content for _, content in headers)])
    return ConsumedRecord(
        topic=message.topic() or "",
        partition=number_of(message.partition()),
        offset=number_of(message.offset()),
        timestamp=None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp,
        key=spelled(key, encoding),
        value=spelled(value, encoding),
        headers=[(name, spelled(content, encoding)) for name, content in headers],
        encoding=encoding,
    )


def number_of(value: int | None) -> int:
    """A number of librdkafka's that is perhaps none: -1."""
    return -1 if value is None else value


def _headers(message: confluent_kafka.Message) -> list[tuple[str, str | bytes | None]]:
    headers = message.headers()
    return list(headers.items()) if isinstance(headers, dict) else list(headers or [])


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
