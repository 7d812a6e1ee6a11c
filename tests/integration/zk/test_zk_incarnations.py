"""Registrations and incarnations against the real server: one zxid for both, and a multi that tells them apart."""

from __future__ import annotations

import threading
from pathlib import Path
from uuid import UUID

import pytest

from regency.broker_agent.ports import IsrChange
from regency.broker_agent.registry.incarnations import guards
from regency.broker_agent.registry.registration import Registered, SessionFile, register
from regency.model.clock import SystemClock
from regency.model.facts import Broker, Endpoint
from regency.model.ids import (
    NO_BROKER_EPOCH,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicId,
    TopicPartition,
    ZkVersion,
)
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.session import Create, SetData, ZkCode

pytestmark = pytest.mark.integration

ME = BrokerId(7)
STATE = znode_paths.partition_state(TopicPartition("t", 0))


@pytest.fixture
def enter(tmp_path: Path):
    def run(session) -> Registered:
        broker = Broker(ME, NO_BROKER_EPOCH, (Endpoint("PLAINTEXT", "here", 9092),))
        files = SessionFile(tmp_path)
        return register(session, broker, session.generation, files, SystemClock(), threading.Event(), whole=True)

    return run


def is_multi(data: bytes) -> bool:
    return data[8:12] == b"\0\0\0\x0e"


def session_epoch(session) -> int:
    return session.read(znode_paths.broker(ME)).stat.czxid


def marked(session) -> tuple[int, int, int]:
    stat = session.read(znode_paths.incarnation(ME)).stat
    return stat.mzxid, stat.version, stat.ephemeral_owner


def test_every_registration_marks_its_incarnation_in_the_same_transaction(new_session, enter):
    first, second = new_session(), new_session()
    before = enter(first)
    assert (session_epoch(first), marked(first)) == (before.epoch, (before.epoch, 0, 0))
    assert enter(first) == before
    after = enter(second)
    assert after.epoch > before.epoch
    assert (session_epoch(second), marked(second)) == (after.epoch, (after.epoch, 1, 0))


def test_a_registration_whose_reply_is_lost_leaves_the_two_as_one(session, proxy, new_session, enter):
    enter(new_session())
    proxy.lose_next_reply(is_multi)
    registered = enter(session)
    assert proxy.lost_replies == 1
    assert (session_epoch(session), marked(session)) == (registered.epoch, (registered.epoch, 1, 0))


def test_an_isr_change_fails_once_a_member_has_registered_again(new_session, enter):
    leader, member, later = new_session(), new_session(), new_session()
    judged = enter(member).epoch
    for path in ("/brokers/topics/t", "/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0", STATE):
        leader.multi([Create(path)])
    change = IsrChange(
        TopicPartition("t", 0),
        TopicId(UUID(int=1)),
        BrokerId(1),
        LeaderEpoch(0),
        ControllerEpoch(1),
        (BrokerId(1), ME),
        ZkVersion(0),
        "7 caught up",
        (BrokerId(1),),
        ((ME, judged),),
    )
    (checks,) = guards(leader, [change], lambda _: None)
    assert leader.multi([SetData(STATE, b"in time", 0), *checks]).ok
    enter(later)
    outcome = leader.multi([SetData(STATE, b"too late", 1), *checks])
    assert (outcome.failed_index, outcome.results[1].code) == (1, ZkCode.BAD_VERSION)
    assert leader.read(STATE).data == b"in time"
