"""What is wrong with the name of a directory that a job is to write, before Spark and its Java are asked. Pure."""

from __future__ import annotations

import re

_ROOT = "is the root of a file system"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


def why_no_directory(path: str) -> str:
    """Why a directory of that name cannot be written, in words behind it; empty where it may be possible."""
    if not path.strip():
        return "is empty"
    scheme, colon, rest = path.partition(":")
    if not colon or "/" in scheme:
        return "" if path.strip("/") else _ROOT
    if not _SCHEME.fullmatch(scheme):
        return "has a colon: what is before the first one is the scheme of a URI, as in hdfs://host/directory"
    if not rest.startswith("/"):
        return f"reads as a URI of the scheme {scheme}, which goes on with a slash, as in {scheme}://host/directory"
    below = rest[2:].partition("/")[2] if rest.startswith("//") else rest
    return "" if below.strip("/") else _ROOT


def why_no_new_directory(path: str) -> str:
    """As why_no_directory, of a directory that is to be made."""
    why = why_no_directory(path)
    if not why and path.rstrip("/").rpartition("/")[2] in (".", ".."):
        return "names no directory of its own"
    return why
