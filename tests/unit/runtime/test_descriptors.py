"""The limit of open files."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import logging, resource, sys
from regency.runtime.descriptors import raise_limit
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
{before}
raise_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("", ["INFO the limit of open files is 200, it was 100", "(200, 200)"]),
        (
            "def refuse(*_): raise ValueError('no')\nresource.setrlimit = refuse",
            ["WARNING the limit of open files stays at 100: no", "(100, 200)"],
        ),
    ],
)
def test_the_soft_limit_becomes_the_hard_one_where_that_is_allowed(before, said):
    script = SCRIPT.format(soft=100, hard=200, before=before)
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout
    assert output.splitlines() == said


def test_a_process_that_serves_opens_its_first_channel_without_a_descriptor():
    script = """
import os, resource
from regency.runtime.grpc.channels import open_channel
from regency.runtime.grpc.servers import GrpcServer
server = GrpcServer([], threads=1, name="test")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        os.open(os.devnull, os.O_RDONLY)
except OSError:
    open_channel("127.0.0.1:1").close()
print("well", flush=True)
os._exit(0)
"""
    assert "well" in subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout
