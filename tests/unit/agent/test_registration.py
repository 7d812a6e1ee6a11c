from __future__ import annotations

import threading
from pathlib import Path

import pytest

from regency.broker_agent.registry.registration import (
    BrokerIdTaken,
    Registered,
    Registration,
    SessionFile,
    ensure_cluster_id,
    ensure_parents,
    register,
)
from regency.model import znodes
from regency.model.clock import ManualClock
from regency.model.facts import Broker, Endpoint
from regency.model.ids import NO_BROKER_EPOCH, BrokerId
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.session import MultiOutcome, OpOutcome, ZkCode, ZkConnectionLost, ZkSessionLost

ME = BrokerId(1)
PATH = znode_paths.broker(ME)
BROKER = Broker(ME, NO_BROKER_EPOCH, (Endpoint("PLAINTEXT", "here", 9092),))


class PassingTime(ManualClock):
    """Every look at the clock lets 10 ms pass, so that a wait ends without waiting."""

    def monotonic_ms(self) -> int:
        self.advance(10)
        return super().monotonic_ms()


class NoWait(threading.Event):
    """An event whose wait does not take time."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


@pytest.fixture
def sessions(tmp_path: Path) -> SessionFile:
    return SessionFile(tmp_path)


def enter(session, sessions: SessionFile) -> Registered:
    return register(session, BROKER, session.generation, sessions, PassingTime(), NoWait(), whole=True)


def test_the_broker_epoch_is_the_znodes_czxid(session, sessions: SessionFile) -> None:
    registered = enter(session, sessions)
    held = session.read(PATH)
    assert registered == Registered(1, held.stat.czxid)
    assert held.stat.ephemeral_owner == session.session_id
    assert znodes.decode_broker(PATH, held.data, id=ME, epoch=held.stat.czxid).endpoints == BROKER.endpoints


def test_registering_again_under_the_same_session_changes_nothing(session, sessions: SessionFile) -> None:
    assert enter(session, sessions) == enter(session, sessions)


def test_the_leftover_of_an_earlier_process_of_this_directory_is_replaced_at_once(
    session, another_session, sessions: SessionFile
) -> None:
    before = enter(another_session, sessions)
    after = enter(session, sessions)
    assert after.epoch > before.epoch
    assert session.read(PATH).stat.ephemeral_owner == session.session_id


def test_somebody_elses_registration_is_waited_out_then_named(
    session, another_session, sessions: SessionFile, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    enter(another_session, SessionFile(elsewhere))
    with pytest.raises(BrokerIdTaken, match="here:9092 is registered at /brokers/ids/1"):
        enter(session, sessions)


def test_a_foreign_registration_that_expires_meanwhile_makes_room(
    session, another_session, sessions: SessionFile, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    enter(another_session, SessionFile(elsewhere))

    class Expires(NoWait):
        def wait(self, timeout: float | None = None) -> bool:
            if another_session.session_id:
                another_session.expire()
            return False

    registered = register(session, BROKER, 1, sessions, PassingTime(), Expires(), whole=True)
    assert session.read(PATH).stat.czxid == registered.epoch


def test_a_lost_reply_is_resolved_by_looking(session, sessions: SessionFile) -> None:
    ensure_parents(session)
    session.lose_replies = 1
    assert enter(session, sessions).epoch == session.read(PATH).stat.czxid


def incarnation(session):
    return session.read(znode_paths.incarnation(ME))


def test_the_incarnation_is_written_with_every_registration_and_by_nothing_else(
    session, another_session, sessions: SessionFile
) -> None:
    first = enter(another_session, sessions)
    assert (incarnation(session).stat.mzxid, incarnation(session).stat.version) == (first.epoch, 0)
    second = enter(session, sessions)
    enter(session, sessions)
    held = incarnation(session)
    assert (held.stat.mzxid, held.stat.version, held.stat.ephemeral_owner) == (second.epoch, 1, 0)


def test_the_incarnation_stays_that_of_the_registration_that_stands_when_the_reply_was_lost(
    session, another_session, sessions: SessionFile
) -> None:
    enter(another_session, sessions)
    session.lose_replies = 1
    registered = enter(session, sessions)
    assert (incarnation(session).stat.mzxid, incarnation(session).stat.version) == (registered.epoch, 1)


def test_of_two_processes_that_register_at_once_the_later_one_leaves_no_trace(
    session, another_session, sessions: SessionFile, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    ensure_parents(session)
    apply = session.server.apply

    def late(ops, session_id):
        session.server.apply = apply
        enter(another_session, SessionFile(elsewhere))
        return apply(ops, session_id)

    session.server.apply = late
    with pytest.raises(BrokerIdTaken):
        enter(session, sessions)
    held = session.read(PATH)
    assert held.stat.ephemeral_owner == another_session.session_id
    assert (incarnation(session).stat.mzxid, incarnation(session).stat.version) == (held.stat.czxid, 0)


def test_an_incarnation_that_somebody_deletes_between_look_and_registration_is_made_again(
    session, another_session, sessions: SessionFile
) -> None:
    enter(another_session, sessions)
    apply = session.server.apply

    def late(ops, session_id):
        session.server.apply = apply
        session.server.remove(znode_paths.incarnation(ME))
        return apply(ops, session_id)

    session.server.apply = late
    assert enter(session, sessions).epoch == incarnation(session).stat.mzxid == session.read(PATH).stat.czxid


def test_a_session_that_moved_on_registers_nothing(session, sessions: SessionFile) -> None:
    with pytest.raises(ZkSessionLost):
        register(session, BROKER, session.generation + 1, sessions, PassingTime(), NoWait(), whole=True)
    assert PATH not in session.server.nodes


def test_remembered_sessions_are_bounded_and_a_damaged_file_is_none(tmp_path: Path) -> None:
    sessions = SessionFile(tmp_path)
    assert sessions.read() == ()
    for number in range(1, 21):
        sessions.add(number)
    assert sessions.read() == tuple(range(5, 21))
    (tmp_path / "session").write_text("not a number")
    assert sessions.read() == ()


def test_parents_and_cluster_id_are_made_once(session) -> None:
    ensure_parents(session)
    made = ensure_cluster_id(session)
    ensure_parents(session)
    assert ensure_cluster_id(session) == made
    assert all(path in session.server.nodes for path in znode_paths.PERSISTENT_PARENTS)


class Keeping:
    """A Registration on queues."""

    def __init__(self, session, sessions: SessionFile, loop) -> None:
        self.registered: list[Registered] = []
        self.refused: list[BaseException] = []
        self.loop = loop
        self.whole = False
        self.keeper = Registration(
            session,
            lambda: BROKER,
            sessions,
            self,
            PassingTime(),
            loop,
            loop.post,
            loop.later,
            self.registered.append,
            self.refused.append,
        )
        self.keeper._stopping = NoWait()
        self.keeper.start()
        loop.run()

    def note_registered(self) -> None:
        """The cluster knows."""
        self.whole = True


@pytest.fixture
def keeping(session, sessions: SessionFile, loop) -> Keeping:
    return Keeping(session, sessions, loop)


def test_a_new_session_registers_again_under_a_new_epoch(keeping: Keeping, session) -> None:
    session.expire()
    keeping.loop.run()
    assert keeping.keeper.owner_generation() is None
    assert keeping.keeper.epoch() == keeping.registered[0].epoch, "the old epoch is kept while there is no new one"
    session.new_session()
    keeping.loop.run()
    first, second = keeping.registered
    assert (first.generation, second.generation) == (1, 2)
    assert second.epoch > first.epoch
    assert (keeping.keeper.owner_generation(), keeping.keeper.epoch()) == (2, second.epoch)
    held = session.read(znode_paths.incarnation(ME))
    assert znodes.decode_process(held.data, epoch=second.epoch)[1] == first.epoch, "no restart"


def test_what_was_lost_before_a_registration_is_said_on_by_the_next_ones(keeping: Keeping, session) -> None:
    keeping.whole = False  # the process has just begun
    for _ in range(2):
        session.expire()
        session.new_session()
        keeping.loop.run()

    _, second, third = keeping.registered
    held = session.read(znode_paths.incarnation(ME))
    assert znodes.decode_incarnation(held.data, epoch=third.epoch) == second.epoch


def test_a_reconnect_within_the_session_changes_nothing(keeping: Keeping, session) -> None:
    session.suspend()
    keeping.loop.run()
    session.resume()
    keeping.loop.run()
    assert len(keeping.registered) == 1


def test_a_registration_deleted_by_hand_is_made_again(keeping: Keeping, session) -> None:
    session.server.remove(PATH)
    keeping.loop.run()
    assert len(keeping.registered) == 2
    assert PATH in session.server.nodes


def test_no_contact_means_later(session, sessions: SessionFile, loop) -> None:
    session.suspend()
    keeping = Keeping(session, sessions, loop)
    assert keeping.registered == [] and keeping.refused == []
    session.resume()
    loop.run_delayed()
    assert len(keeping.registered) == 1


def test_access_that_is_denied_is_told_once_and_asked_for_again(session, sessions: SessionFile, loop, caplog) -> None:
    allowed = session.server.apply

    def denied(ops, session_id):
        if ops[0].path != PATH:
            return allowed(ops, session_id)
        return MultiOutcome((OpOutcome(ZkCode.NO_AUTH), OpOutcome(ZkCode.ROLLED_BACK)))

    session.server.apply = denied
    keeping = Keeping(session, sessions, loop)
    for _ in range(3):
        loop.run_delayed()
    [told] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert PATH in told and "regency.zookeeper.digest.auth" in told
    session.server.apply = allowed
    loop.run_delayed()
    assert len(keeping.registered) == 1


def test_a_taken_id_is_refused(session, another_session, sessions: SessionFile, loop, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    enter(another_session, SessionFile(elsewhere))
    keeping = Keeping(session, sessions, loop)
    assert [type(error) for error in keeping.refused] == [BrokerIdTaken]


def test_nothing_is_registered_after_stop(keeping: Keeping, session) -> None:
    keeping.keeper.stop()
    keeping.keeper._stopping.set()
    session.expire()
    session.new_session()
    keeping.loop.run()
    assert len(keeping.registered) == 1
    assert PATH not in session.server.nodes


def test_a_lost_reply_without_contact_is_raised_when_time_is_up(session, sessions: SessionFile) -> None:
    ensure_parents(session)
    session.lose_replies = 10_000
    session.server.apply = lambda ops, session_id: None
    with pytest.raises(ZkConnectionLost):
        enter(session, sessions)


def test_a_directory_that_takes_no_session_id_costs_nobody_the_registration(session, tmp_path: Path, caplog) -> None:
    sessions = SessionFile(tmp_path / "gone")

    assert enter(session, sessions).epoch == session.read(PATH).stat.czxid
    assert "cannot be noted for the next start" in caplog.text


def test_a_persistent_znode_under_the_brokers_id_is_nobodys_leftover(session, sessions: SessionFile) -> None:
    session.server.put(PATH, b"{}")
    (sessions._path).write_text("0x0\n")

    with pytest.raises(BrokerIdTaken):
        enter(session, sessions)
    assert session.read(PATH).data == b"{}"
