"""How bytes of records stand in text: as they are where they are UTF-8, else in base64."""

from __future__ import annotations

import base64
from collections.abc import Iterable

UTF8, BASE64 = "utf-8", "base64"


def encoding_of(parts: Iterable[bytes | None]) -> str:
    """`utf-8` where all of these are, else `base64`."""
    try:
        for part in parts:
            (part or b"").decode()
    except UnicodeDecodeError:
        return BASE64
    return UTF8


def spelled(data: bytes | None, encoding: str) -> str | None:
    """Bytes as text in that encoding."""
    if data is None:
        return None
    return data.decode() if encoding == UTF8 else base64.b64encode(data).decode("ascii")
