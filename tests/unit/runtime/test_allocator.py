"""Large buffers are used again: their memory is not given back and faulted in anew each time."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
from regency.runtime.descriptors import keep_large_buffers
if {keep}:
    assert keep_large_buffers()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    held = [bytes(1 << 20) for _ in range(20)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*, keep: bool) -> int:
    script = FAULTS.format(keep=keep)
    return int(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is GNU libc's")
@pytest.mark.timeout(30)
def test_buffers_of_large_answers_are_faulted_in_once() -> None:
    once = (20 << 20) // 4096
    assert faults(keep=True) < 1.5 * once
    assert faults(keep=False) > 2 * once
