"""The root of every error a user or a caller may see. Modules define their own subclasses next to what raises them."""

from __future__ import annotations

from typing import ClassVar


class RegencyError(Exception):
    """An expected failure: it names what was refused and, in `hint`, what to do next.

    `code` is stable and machine readable; `retriable` says whether the same call may succeed later unchanged.
    """

    code: ClassVar[str] = "error"
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


class ControllerMoved(RegencyError):
    """The controller epoch in ZooKeeper is newer than ours: someone else rules. Resign; never retry."""

    code = "controller_moved"


class ZnodeMalformed(RegencyError):
    """The content of a znode cannot be read as what belongs there."""

    code = "znode_malformed"

    def __init__(self, path: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{path}: {reason}.", hint=hint)
        self.path = path
        self.reason = reason
