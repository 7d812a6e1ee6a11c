"""A moment as an option of a command takes it: so long ago, or a date, a time, or both."""

from __future__ import annotations

import re
import time
from datetime import datetime

import click

_AGO = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_MILLISECONDS = re.compile(r"\d{12,14}")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Moment(click.ParamType[int]):
    """A time: `10m` ago (s, m, h, d), a date, a time of today, or both, in local time, or milliseconds since 1970."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds since 1970."""
        if isinstance(value, int):
            return value
        text = str(value)
        if _MILLISECONDS.fullmatch(text):  # as records have it: 2001 and later
            return int(text)
        ago = _AGO.fullmatch(text)
        if ago is not None:
            return int((time.time() - float(ago[1]) * _SECONDS[ago[2]]) * 1000)
        when = _local_moment(text)
        if when is None:
            self.fail(f"{text!r} is no time. Say for example 10m, 14:30 or 2026-05-04T14:30:00.", param, ctx)
        return when


def _local_moment(text: str) -> int | None:
    today = datetime.now().astimezone().date().isoformat()
    for words in (f"{today}T{text}",) if ":" in text and "-" not in text else (text,):
        try:
            return int(datetime.fromisoformat(words).astimezone().timestamp() * 1000)
        except (ValueError, OverflowError):
            continue
    return None
