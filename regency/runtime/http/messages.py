"""A request and its answer, as far as probes and scrapes need HTTP. Pure."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import parse_qs, unquote

import msgspec

MOST_HEADERS = 64


class BadRequest(Exception):
    """What came is no HTTP request; the text says why."""


class Request(msgspec.Struct, frozen=True):
    """The head of a request. Header names are in lower case."""

    method: str
    path: str
    query: dict[str, list[str]] = {}
    headers: dict[str, str] = {}


class Response(msgspec.Struct, frozen=True):
    """An answer. `headers` without those that every answer has."""

    status: int
    body: bytes
    headers: dict[str, str] = {}


def text(status: int, words: str, headers: dict[str, str] | None = None) -> Response:
    """An answer for people."""
    return Response(status, f"{words}\n".encode(), {"Content-Type": "text/plain; charset=utf-8", **(headers or {})})


def parse_head(head: bytes) -> Request:
    """Read everything up to the empty line. Raises BadRequest."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[0].isalpha():
        raise BadRequest("the first line is not METHOD TARGET HTTP/1.1")
    method, target, _ = words
    if len(lines) - 1 > MOST_HEADERS:
        raise BadRequest(f"more than {MOST_HEADERS} header lines")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, content = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest("a header line is not NAME: VALUE")
        name = name.lower()
        headers[name] = f"{headers[name]}, {content.strip()}" if name in headers else content.strip()
    path, _, query = target.partition("?")
    if not path.startswith("/"):
        raise BadRequest("the target is not a path")
    try:
        return Request(method, unquote(path), parse_qs(query, max_num_fields=1000), headers)
    except ValueError as error:
        raise BadRequest(f"the query cannot be read: {error}") from error


def encode(response: Response, *, body: bool) -> bytes:
    """The bytes of an answer after which the connection is closed; without its body for HEAD."""
    lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
    lines += [f"{name}: {content}" for name, content in response.headers.items()]
    lines += [f"Content-Length: {len(response.body)}", "Cache-Control: no-store", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1") + (response.body if body else b"")


def qualities(header: str) -> dict[str, float]:
    """The choices of an Accept or Accept-Encoding header with their weights, 0 to 1. What is malformed weighs 0."""
    found: dict[str, float] = {}
    for choice in header.split(","):
        name, *parameters = (part.strip() for part in choice.split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, number = parameter.partition("=")
            if key.strip().lower() == "q":
                try:
                    quality = float(number)
                except ValueError:
                    quality = 0.0
        if name:
            found[name.lower()] = max(quality, found.get(name.lower(), 0.0))
    return found
