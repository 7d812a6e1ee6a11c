"""kcat: a balanced consumer (`-G`) of two processes, by Debian's package."""

from __future__ import annotations

import subprocess
import time
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat.suite import Case, Suite, Target, timed

RECORDS: Final = 1_000
WITHIN_S: Final = 60.0


def run(_: Suite, target: Target) -> list[Case]:
    """One member reads everything; two share what is produced while both are there."""
    return [
        timed("one member reads the topic to its end", lambda: _reads_all(target)),
        timed("two members share the partitions, and each record is read once", lambda: _shares(target)),
    ]


def _topic(target: Target, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
    for made in admin.create_topics([NewTopic(name, 6, min(3, target.brokers))]).values():
        made.result(30)


def _produce(target: Target, topic: str) -> None:
    producer = Producer({"bootstrap.servers": target.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=number % 6)
    left = producer.flush(30)
    assert left == 0, f"{left} records were not acknowledged"


def _member(target: Target, group: str, topic: str, *options: str) -> subprocess.Popen[str]:
    command = ["kcat", "-b", target.bootstrap_servers, "-q", "-u", "-X", "auto.offset.reset=earliest"]
    command += ["-X", "session.timeout.ms=6000", *options, "-G", group, topic]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _reads_all(target: Target) -> str:
    _topic(target, "kcat-one")
    _produce(target, "kcat-one")
    member = _member(target, "kcat-one", "kcat-one", "-e", "-c", str(RECORDS))
    try:
        said, complaints = member.communicate(timeout=WITHIN_S)
    except subprocess.TimeoutExpired:
        member.kill()
        said, complaints = member.communicate()
        return f"after {WITHIN_S:.0f} s it had read {len(said.split())} of {RECORDS}: {complaints.strip()[-200:]}"
    return "" if sorted(map(int, said.split())) == list(range(RECORDS)) else f"read {len(said.split())} of {RECORDS}"


def _shares(target: Target) -> str:
    _topic(target, "kcat-two")
    members = [_member(target, "kcat-two", "kcat-two") for _ in range(2)]
    time.sleep(12)  # both have joined: the first rebalance delay and one more round
    _produce(target, "kcat-two")
    time.sleep(5)
    for member in members:
        member.terminate()
    read = [sorted(map(int, member.communicate(timeout=WITHIN_S)[0].split())) for member in members]
    if sorted(read[0] + read[1]) != list(range(RECORDS)):
        return f"they read {len(read[0])} and {len(read[1])} of {RECORDS}"
    return "" if all(read) else f"one member read everything: {len(read[0])} and {len(read[1])}"


SUITE: Final = Suite(name="kcat", what="kcat -G, one member and two", programs=("kcat",), run=run)
