"""A process that sleeps through its session (SIGSTOP) and wakes up with a write in its hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from regency.runtime.zookeeper.session import Create

pytestmark = pytest.mark.integration

SLEEPER = """
import json, sys
from regency.runtime.zookeeper.client import connect
from regency.runtime.zookeeper.session import Create, ZkError
session = connect(sys.argv[1], session_timeout_ms=1500, connect_timeout_ms=20000)
session.multi([Create("/ruler", ephemeral=True)], generation=1)
print(json.dumps("ready"), flush=True)
sys.stdin.readline()
try:
    session.multi([Create("/stale")], generation=1)
    print(json.dumps("written"), flush=True)
except ZkError as error:
    print(json.dumps(error.code), flush=True)
session.close()
"""


def test_a_write_after_waking_up_is_refused(zookeeper, chroot, new_session, eventually):
    session = new_session()
    sleeper = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, f"{zookeeper.connect_string}{chroot}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with sleeper:
        try:
            assert json.loads(sleeper.stdout.readline()) == "ready"
            os.kill(sleeper.pid, signal.SIGSTOP)
            eventually(lambda: session.read("/ruler") is None, what="the sleeper's ephemeral to expire")
            assert session.multi([Create("/ruler", ephemeral=True)]).ok
            sleeper.stdin.write("go on\n")
            sleeper.stdin.flush()
            os.kill(sleeper.pid, signal.SIGCONT)
            assert json.loads(sleeper.stdout.readline()) in ("zk_session_lost", "zk_connection_lost")
        finally:
            sleeper.kill()
    assert session.read("/stale") is None
    assert session.read("/ruler").stat.ephemeral_owner == session.session_id
