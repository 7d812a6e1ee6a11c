"""Where simulated clients write down what they did and saw, in the terms of `regency.judge.operations`."""

from __future__ import annotations

from regency.judge.operations import Operation


class History:
    """The operations of one run so far; also gives out what must be unique in it. Values count from 1."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._values = 0
        self._sessions: dict[str, int] = {}

    def record(self, operation: Operation) -> None:
        self.operations.append(operation)

    def next_value(self) -> int:
        """A value no other record of the run has."""
        self._values += 1
        return self._values

    def next_session(self, client: str) -> int:
        """Number of the client's next session, from 0; goes on over its restarts."""
        session = self._sessions.get(client, 0)
        self._sessions[client] = session + 1
        return session


def began_ms(now_us: int) -> int:
    """Milliseconds of something that begins now, rounded down: rounding never makes two operations look ordered."""
    return now_us // 1000


def ended_ms(now_us: int) -> int:
    """Milliseconds of something that ends now, rounded up."""
    return -(-now_us // 1000)
