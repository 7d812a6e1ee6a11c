"""Kinds of option values that settings files do not know: durations as Spark writes them. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

_DURATION: Final = re.compile(r"([0-9]{1,18})\s*([a-z]*)")
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class Duration(msgspec.Struct, frozen=True):
    """A time as Spark writes it, in milliseconds: 500, 500ms, 30s, 15m, 1h, 1d."""

    @property
    def type_name(self) -> str:
        """`duration`."""
        return "duration"

    @property
    def allowed(self) -> str:
        """The form."""
        return "a number with ms, s, m, h or d behind it, such as 15m; milliseconds without"

    def parse(self, text: str) -> int:
        """Milliseconds. Raises ValueError."""
        match = _DURATION.fullmatch(text.lower())
        if match is None or match[2] not in _UNITS_MS:
            raise ValueError(f"expected {self.allowed}")
        return int(match[1]) * _UNITS_MS[match[2]]
