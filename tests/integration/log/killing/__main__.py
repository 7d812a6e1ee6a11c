"""`python -m killing SCENARIO ROOT POINT NTH`: go through a scenario in the directories below ROOT, and die in it.

The process kills itself with SIGKILL when it passes the crash point POINT for the NTH time. With an empty POINT it goes
through to the end, and says how often it passed which.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path

from killing.broker import Broker, tell
from killing.scenarios import SCENARIOS
from regency.model import crash_points


def watch(point: str, nth: int) -> Counter[str]:
    """Die at a crash point; how often each was passed so far."""
    passed: Counter[str] = Counter()

    def look(name: str) -> None:
        passed[name] += 1
        if name == point and passed[name] == nth:
            tell(reached=name, nth=nth)
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.observe(look)
    return passed


def main(arguments: list[str]) -> None:
    """Go through a scenario."""
    scenario, root, point, nth = arguments
    passed = watch(point, int(nth))
    SCENARIOS[scenario](Broker(Path(root)))
    tell(passed=passed)


if __name__ == "__main__":
    main(sys.argv[1:])
