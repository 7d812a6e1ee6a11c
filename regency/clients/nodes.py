"""Where brokers are reached."""

from __future__ import annotations

import msgspec

from regency.model.ids import BrokerId


class Node(msgspec.Struct, frozen=True):
    """A live broker, or its controller process, and where it is reached."""

    id: BrokerId
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """host:port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
