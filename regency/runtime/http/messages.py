"""A request and its answer, as handlers of probes and scrapes see them. Pure."""

from __future__ import annotations

import msgspec


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


def text(status: int, words: str) -> Response:
    """An answer for people."""
    return Response(status, f"{words}\n".encode(), {"Content-Type": "text/plain; charset=utf-8"})


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
