"""A row of the table of holes."""

from __future__ import annotations

from typing import NamedTuple


class Hole(NamedTuple):
    """Something that was wrong with Kafka's controller or brokers."""

    ids: str
    """Issues and KIPs, comma-separated, or a name for what has none."""
    what: str
    """What was wrong, in a few words."""
    planted: str = ""
    """The defects that plant it, space-separated; those planted in vain are among them."""
    why_not: str = ""
    """Why nothing plants it, or not all of it."""

    @property
    def defects(self) -> tuple[str, ...]:
        """The defects that plant it."""
        return tuple(self.planted.split())
