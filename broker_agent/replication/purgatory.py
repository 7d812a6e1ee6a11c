"""Where operations wait for partitions: produces for the high watermark, fetches for data. Costs nothing while idle.

Passive: an event of a partition looks at the operations that wait for that partition, and only at what the event
changed in them; time is a heap of deadlines that its owner asks about. Completed exactly once, through Completions.
"""

from __future__ import annotations

import heapq
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count

from regency.model.ids import TopicPartition

logger = logging.getLogger(__name__)

_COMPACT_ABOVE = 256
"""Dead deadlines are swept when the heap is longer than this and mostly dead."""


class Completions:
    """Answers that are ready, and `with completions:` around whatever changes state. Data loop only.

    Every entry into the ReplicaManager holds them back until no partition is half changed; leaving the outermost one
    makes the calls. What is called may come back in and add more, so nothing ever runs inside a state change
    (KAFKA-8334).
    """

    def __init__(self) -> None:
        self._queue: deque[Callable[[], None]] = deque()
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        try:
            if self._depth == 1:
                self._drain()
        finally:
            self._depth -= 1

    def add(self, call: Callable[[], None]) -> None:
        """Have `call` made when nothing is half changed, in order."""
        self._queue.append(call)

    def _drain(self) -> None:
        while self._queue:
            call = self._queue.popleft()
            try:
                call()
            except Exception:  # one client's broken connection must not keep the others from their answers
                logger.exception("an answer could not be delivered")


class DelayedOperation(ABC):
    """Something that waits for partitions until `deadline_ms` (monotonic). Watched by one purgatory at most once."""

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.done = False

    @abstractmethod
    def partitions(self) -> Iterable[TopicPartition]:
        """The partitions whose events matter to it; always the same ones."""

    @abstractmethod
    def progress(self, partition: TopicPartition) -> bool:
        """Look at one partition that changed; whether the operation is complete. Changes nothing but itself."""

    @abstractmethod
    def finish(self) -> None:
        """Answer. Called once, from Completions, after completion or at the deadline."""


class Purgatory:
    """Operations waiting by partition."""

    def __init__(self, completions: Completions) -> None:
        self._completions = completions
        self._waiting: dict[TopicPartition, dict[DelayedOperation, None]] = {}
        self._deadlines: list[tuple[int, int, DelayedOperation]] = []
        self._numbers = count()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def next_deadline_ms(self) -> int | None:
        """When `expire_due` has something to do; None while nothing waits."""
        while self._deadlines and self._deadlines[0][2].done:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def watch(self, operation: DelayedOperation) -> None:
        """Let an operation wait that is not complete yet."""
        self.attend(operation, operation.partitions())
        self.expect(operation)

    def attend(self, operation: DelayedOperation, partitions: Iterable[TopicPartition]) -> None:
        """Have an operation hear of these, before `expect`; some of those it names."""
        for key in partitions:
            self._waiting.setdefault(key, {})[operation] = None

    def expect(self, operation: DelayedOperation) -> None:
        """Let an operation wait that attends to all it names."""
        self._size += 1
        heapq.heappush(self._deadlines, (operation.deadline_ms, next(self._numbers), operation))
        if len(self._deadlines) > _COMPACT_ABOVE and len(self._deadlines) > 2 * self._size:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
            heapq.heapify(self._deadlines)

    def check(self, partition: TopicPartition) -> None:
        """Something about the partition changed: complete what it completes."""
        waiting = self._waiting.get(partition)
        if waiting:
            for operation in [operation for operation in waiting if operation.progress(partition)]:
                self._complete(operation)

    def expire_due(self, now_ms: int) -> None:
        """Complete every operation whose deadline has come."""
        while (deadline := self.next_deadline_ms) is not None and deadline <= now_ms:
            self._complete(self._deadlines[0][2])

    def complete_all(self) -> None:
        """Complete whatever waits, as at a deadline: the broker stops."""
        for _, _, operation in sorted(self._deadlines, key=lambda entry: entry[1]):
            if not operation.done:
                self._complete(operation)

    def cancel(self, operation: DelayedOperation) -> None:
        """The answer is not wanted any more. Harmless when the operation is complete."""
        if not operation.done:
            self._forget(operation)

    def leave(self, operation: DelayedOperation) -> None:
        """End an operation that was never expected."""
        operation.done = True
        for key in operation.partitions():
            waiting = self._waiting[key]
            del waiting[operation]
            if not waiting:
                del self._waiting[key]

    def _complete(self, operation: DelayedOperation) -> None:
        self._forget(operation)
        self._completions.add(operation.finish)

    def _forget(self, operation: DelayedOperation) -> None:
        self._size -= 1
        self.leave(operation)
