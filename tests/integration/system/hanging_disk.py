"""`python hanging_disk.py FLAG ARGUMENTS...`: an agent whose writes of logs hang while the file FLAG holds its pid."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from regency.broker_agent.__main__ import main

FLAG = Path(sys.argv[1])
write = os.pwrite


def hanging(fd: int, data: bytes, position: int) -> int:
    while FLAG.read_text("ascii") == str(os.getpid()):
        time.sleep(0.05)
    return write(fd, data, position)


FLAG.touch()
os.pwrite = hanging  # type: ignore[assignment]
sys.exit(main(sys.argv[2:]))
