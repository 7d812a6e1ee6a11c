"""What is wrong with the name of a directory that a job is to write, before Spark and its Java are asked. Pure."""

from __future__ import annotations

import re

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


def why_no_directory(path: str) -> str:
    """Why Hadoop takes no directory of that name, in words behind it; empty where it may."""
    if not path.strip():
        return "is empty"
    scheme, colon, rest = path.partition(":")
    if not colon or "/" in scheme:
        return ""
    if not _SCHEME.fullmatch(scheme):
        return "has a colon: what is before the first one is the scheme of a URI, as in hdfs://host/directory"
    if not rest.startswith("/"):
        return f"reads as a URI of the scheme {scheme}, which goes on with a slash, as in {scheme}://host/directory"
    return ""


def why_no_new_directory(path: str) -> str:
    """As why_no_directory, of a directory that is to be made: the root of a file system is there always."""
    why = why_no_directory(path)
    if why:
        return why
    scheme, colon, rest = path.partition(":")
    name = rest if colon and "/" not in scheme else path
    if name.startswith("//"):
        name = "/" + name[2:].partition("/")[2] if colon and "/" not in scheme else name
    if not name.strip("/"):
        return "is the root of a file system, which is there always"
    if name.rstrip("/").rpartition("/")[2] in (".", ".."):
        return "names no directory of its own"
    return ""
