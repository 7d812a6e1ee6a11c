"""Disk work that may happen later, on the worker pool: syncing replaced files, removing deleted ones."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from regency.broker_agent.ports import Worker
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.runtime.descriptors import is_shortage
from regency.runtime.disk import Disk

logger = logging.getLogger(__name__)

_SYNCS_PER_JOB = 1024
_REMOVALS_PER_JOB = 128


class BackgroundSync:
    """Syncs files and directories by path, each soon and at least once after it was asked for. Data loop only.

    A file counts as synced when that is certain, and waits until then.
    """

    def __init__(self, disk: Disk, worker: Worker) -> None:
        self._disk = disk
        self._worker = worker
        self._waiting: dict[Path, Callable[[OSError], None]] = {}
        self._running: dict[Path, Callable[[OSError], None]] = {}
        self._then: Callable[[], None] | None = None

    def later(self, path: Path, failed: Callable[[OSError], None]) -> None:
        """Sync `path`, unless it is gone by then; `failed` is called on the data loop if that is impossible."""
        self._waiting[path] = failed
        if not self._running:
            self._start()

    def when_done(self, action: Callable[[], None]) -> None:
        """Call `action` once nothing waits for being synced: now, or later. Of several that wait the last is called."""
        if not self._running and self._waiting:
            self._start()
        if self._running:
            self._then = action
        else:
            action()

    def give_up(self) -> list[Path]:
        """Sync nothing more; returns what may not have been synced yet, of which some may be gone."""
        given_up = [*self._running, *self._waiting]
        self._waiting.clear()
        self._then = None
        return given_up

    def _start(self) -> None:
        paths = list(self._waiting)[:_SYNCS_PER_JOB]
        batch = {path: self._waiting.pop(path) for path in paths}
        self._running = batch
        self._worker.submit(lambda: _sync_all(self._disk, paths), self._done)

    def _done(self, outcome: dict[Path, OSError] | BaseException) -> None:
        batch, self._running = self._running, {}
        if isinstance(outcome, BaseException):  # the agent is stopping, or worse
            logger.warning("%d files were not synced in the background yet: %s", len(batch), outcome)
            self._waiting = {**batch, **self._waiting}
            return
        for path, error in outcome.items():
            if is_shortage(error):
                self._waiting.setdefault(path, batch[path])
            else:
                batch[path](error)
        if self._waiting:
            self._start()
        elif self._then is not None:
            action, self._then = self._then, None
            action()


class Trash:
    """Removes files and directories some time after they were renamed out of use. Data loop only."""

    def __init__(self, disk: Disk, clock: Clock, worker: Worker) -> None:
        self._disk = disk
        self._clock = clock
        self._worker = worker
        self._due: list[tuple[int, Path]] = []

    def put(self, paths: Iterable[Path], delay_ms: int) -> None:
        """Remove `paths` no sooner than `delay_ms` from now."""
        due = self._clock.monotonic_ms() + delay_ms
        for path in paths:
            heapq.heappush(self._due, (due, path))

    def moved(self, old: Path, new: Path) -> None:
        """The directory `old` is called `new` now."""
        self._due = [
            (due, new / path.relative_to(old) if path.is_relative_to(old) else path) for due, path in self._due
        ]

    def remove_due(self) -> int | None:
        """Remove what is due; returns the monotonic millisecond at which more will be, if there is more."""
        now = self._clock.monotonic_ms()
        paths: list[Path] = []
        while self._due and self._due[0][0] <= now:
            paths.append(heapq.heappop(self._due)[1])
        for start in range(0, len(paths), _REMOVALS_PER_JOB):
            self._submit(paths[start : start + _REMOVALS_PER_JOB])
        return self._due[0][0] if self._due else None

    def _submit(self, paths: list[Path]) -> None:
        self._worker.submit(lambda: _remove_all(self._disk, paths), _report_removal)


def _sync_all(disk: Disk, paths: list[Path]) -> dict[Path, OSError]:
    crash_point("log.background_sync.before_sync")
    found = disk.sync_paths(paths)
    failed = {path: error for path, error in found.items() if not isinstance(error, FileNotFoundError)}
    raise_shortage(failed)
    return failed


def _remove_all(disk: Disk, paths: list[Path]) -> dict[Path, OSError]:
    failed: dict[Path, OSError] = {}
    crash_point("log.removal.before_remove")
    for path in paths:
        try:
            if disk.is_directory(path):
                disk.remove_tree(path)
            else:
                disk.remove(path, missing_ok=True)
        except OSError as error:
            failed[path] = error
    raise_shortage(failed)
    return failed


def raise_shortage(failed: Mapping[Path, OSError]) -> None:
    """Have the job repeated where that is all it needs. Other errors must be told: a file's next sync may succeed."""
    errors = list(failed.values())
    if errors and all(map(is_shortage, errors)):
        raise errors[0]


def _report_removal(outcome: dict[Path, OSError] | BaseException) -> None:
    if isinstance(outcome, BaseException):
        logger.error("could not remove deleted files", exc_info=outcome)
        return
    for path, error in outcome.items():
        logger.warning("%s stays on the disk until the next start: %s", path, error)
