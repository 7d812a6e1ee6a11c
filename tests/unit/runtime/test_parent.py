from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest

PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
print(child.stdout.readline().decode().strip(), flush=True)
sys.stdin.read()
"""
CHILD = """
import os, signal
from regency.runtime.supervise import die_with_parent
die_with_parent()
print(os.getpid(), flush=True)
os.close(1)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux kills children with their parent")
def test_a_stopped_child_dies_with_its_parent() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with parent:
        assert parent.stdout is not None and parent.stderr is not None
        child = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
        try:
            assert parent.stderr.read() == b""  # ends when the child, which holds the other end, is gone
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
