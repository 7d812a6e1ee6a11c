"""What a process told before it was killed, and so what its logs have to hold."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from killing.batches import Batch


class Held:
    """What a log has to hold: from some offset between `least_start` and `start`, to one from `least_end` to `end`."""

    def __init__(self) -> None:
        self.least_start = self.start = self.least_end = self.end = self.mark = 0
        self.batches: dict[int, Batch] = {}
        self.is_emptied = False
        """Whether it may also be empty, wherever it begins."""
        self.is_unheard = False
        """Whether the disk may not know that it was emptied, and so it may begin elsewhere: until it is appended to."""
        self.is_compacted = False
        """Whether records may be gone that had a later one of their key when the log was compacted."""
        self.may_be_gone: set[int] = set()
        """Their offsets; and those of deletions."""

    def compact(self) -> None:
        """It begins: what has no later record of its key now stays, whatever is cut off later."""
        self.is_compacted = True
        records = [record for _, batch in sorted(self.batches.items()) for record in batch.records()]
        last = {key: offset for offset, key, _ in records}
        self.may_be_gone |= {offset for offset, key, value in records if offset < last[key] or value is None}

    def append(self, batches: list[Batch]) -> None:
        self.may_be_gone = {offset for offset in self.may_be_gone if offset < batches[0].base}
        self.least_end = self.end = batches[0].base
        self.batches = {base: batch for base, batch in self.batches.items() if base < self.end}
        self.batches |= {batch.base: batch for batch in batches}
        self.end = batches[-1].following

    def cut(self, offset: int) -> None:
        """What is at `offset` and above may be gone."""
        if offset >= self.end:
            return
        if offset <= self.start:
            self.start_over(offset)
            return
        straddling = [batch.base for batch in self.batches.values() if batch.base < offset < batch.following]
        self.least_end = min([offset, *straddling])
        self.least_start = min(self.least_start, self.least_end)
        self.mark = min(self.mark, self.least_end)

    def start_over(self, offset: int) -> None:
        self.is_emptied = self.is_unheard = True
        self.least_end = offset
        self.mark = 0

    def done(self) -> None:
        if self.is_emptied:
            self.is_emptied = False
            self.least_start = self.start = self.end = self.least_end
            self.batches.clear()
        elif self.least_end < self.end and max(self.batches, default=0) < self.least_end:
            self.end = self.least_end


class Ledger:
    """What a process told before it was killed."""

    def __init__(self, told: bytes) -> None:
        self.logs: dict[str, Held] = {}
        self.maybe_gone: set[str] = set()
        self.strays = 0
        self.reached: tuple[str, int] | None = None
        self.passed: Counter[str] = Counter()
        self.operation: dict[str, Any] | None = None
        """The one that was under way."""
        for line in told.splitlines():
            self._take(json.loads(line))

    def _take(self, line: dict[str, Any]) -> None:
        match line:
            case {"op": _}:
                self.operation = line
                self._begin(line)
            case {"done": _}:
                assert self.operation is not None
                self._end(self.operation | line)
                self.operation = None
            case {"reached": name, "nth": nth}:
                self.reached = (name, nth)
            case {"passed": passed}:
                self.passed = Counter(passed)
            case {"failed": what}:
                pytest.fail(f"a directory failed: {what}")

    def _begin(self, line: dict[str, Any]) -> None:
        name = line["log"]
        match line["op"]:
            case "create":
                self.logs[name] = Held()
                self.maybe_gone.add(name)
            case "append":
                self.logs[name].append([each for data in line["batches"] for each in Batch.all_in(bytes.fromhex(data))])
            case "cut":
                self.logs[name].cut(line["offset"])
            case "compact":
                self.logs[name].compact()
            case "lose":
                self.logs[name].least_end = line["offset"]
            case "start over":
                self.logs[name].start_over(line["offset"])
            case "raise start" | "expire":
                self.logs[name].start = max(self.logs[name].start, line["offset"])
            case "delete" | "stray":
                self.maybe_gone.add(name)
                self.strays += line["op"] == "stray"

    def _end(self, line: dict[str, Any]) -> None:
        name = line["log"]
        match line["op"]:
            case "create":
                self.maybe_gone.discard(name)
            case "append":
                self.logs[name].least_end = self.logs[name].end
                self.logs[name].is_unheard = False
            case "cut":
                held = self.logs[name]
                if not held.is_emptied:
                    kept = [each for each in held.batches.values() if each.following <= held.least_end]
                    held.batches = {each.base: each for each in kept}
                    held.start = min(held.start, held.least_end)
                held.done()
            case "start over":
                self.logs[name].done()
            case "expire":
                self.logs[name].least_start = self.logs[name].start = line["offset"]
            case "checkpoint":
                for each, start in line["starts"].items():
                    self.logs[each].least_start = start
                    self.logs[each].mark = line["marks"][each]
            case "delete" | "stray":
                del self.logs[name]
                self.maybe_gone.discard(name)
