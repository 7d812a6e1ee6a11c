"""`python slow_syncs.py FLAG ARGUMENTS...`: an agent whose disk takes 30 ms more for a sync while FLAG exists."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from regency.broker_agent.__main__ import main

FLAG = Path(sys.argv[1])
sync = os.fsync


def slow(fd: int) -> None:
    if FLAG.exists():
        time.sleep(0.03)
    sync(fd)


os.fsync = slow
sys.exit(main(sys.argv[2:]))
