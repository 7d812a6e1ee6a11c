"""Ends an agent whose data loop hangs: its ZooKeeper session, which other threads keep, would let it lead for ever.

A disk that does not answer holds the loop, and with it every partition of the broker. After a restart, or once the
session is over, others lead.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

LOOK_MS = 1000
"""How often the watchdog looks; the loop shows itself as often."""
LAST_WORDS_S = 5.0
"""What writing the stacks may take: what hangs may be the file that they go to."""


class Silence:
    """For how long the loop has not shown itself, as far as this process ran at all."""

    def __init__(self) -> None:
        self._seen = -1
        self._last_ms = 0
        self._silent_ms = 0

    def look(self, shown: int, now_ms: int) -> int:
        """Milliseconds of silence at `now_ms`, monotonic. `shown` is how often the loop has shown itself.

        From one look to the next at most two intervals count: a process that was paused, or a machine that slept, did
        not run, and neither did its loop.
        """
        if shown == self._seen:
            self._silent_ms += min(now_ms - self._last_ms, 2 * LOOK_MS)
        else:
            self._silent_ms = 0
        self._seen, self._last_ms = shown, now_ms
        return self._silent_ms


class Watchdog:
    """A thread that looks at the loop and ends the process when it is silent for `limit_ms`; 0: there is none."""

    def __init__(
        self,
        shown: Callable[[], int],
        now_ms: Callable[[], int],
        limit_ms: int,
        end: Callable[[int], None] | None = None,
    ) -> None:
        self._end = end or end_hung_process
        self._shown = shown
        self._now_ms = now_ms
        self._limit_ms = limit_ms
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to look."""
        if self._limit_ms:
            threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Look no more: closing many logs in order may take longer than any limit."""
        self._stopped.set()

    def _run(self) -> None:
        silence = Silence()
        while not self._stopped.wait(LOOK_MS / 1000):
            silent_ms = silence.look(self._shown(), self._now_ms())
            if silent_ms >= self._limit_ms:
                self._end(silent_ms)


def end_hung_process(silent_ms: int) -> None:
    """Write the stacks of all threads to stderr and end, with status 1, whether or not they could be written."""

    def last_words() -> None:
        faulthandler.dump_traceback(all_threads=True)
        logger.critical(
            "the data loop has hung for %d ms (regency.loop.watchdog.ms); the agent ends, its threads stood as above",
            silent_ms,
        )
        logging.shutdown()

    speaker = threading.Thread(target=last_words, name="last-words", daemon=True)
    speaker.start()
    speaker.join(LAST_WORDS_S)
    os._exit(1)
