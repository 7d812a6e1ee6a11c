"""What makes an ISR write fail once a member has restarted."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from regency.broker_agent.ports import IsrChange
from regency.broker_agent.registry.incarnations import Refused, guards, mark
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition, ZkVersion
from regency.model.znodes import NO_LOSS, decode_process
from regency.model.znodes import decode_incarnation as lost
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.session import Check, Create, Delete

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
FLIGHTS = TopicPartition("flights", 0)
STATE = znode_paths.partition_state(FLIGHTS)
STAYING = IsrChange(
    FLIGHTS, TopicId(UUID(int=1)), ONE, LeaderEpoch(4), ControllerEpoch(2), (ONE, TWO), ZkVersion(0), "3 is behind"
)
RESTARTED = Refused("[2] restarted or left meanwhile")


def joins(epoch: int) -> IsrChange:
    return msgspec.structs.replace(STAYING, previous=(ONE,), joining=((TWO, BrokerEpoch(epoch)),))


class Brokers:
    """Registers brokers, and tells what metadata knows of them."""

    def __init__(self, session) -> None:
        self.session = session
        self.known: dict[BrokerId, BrokerEpoch] = {}

    def register(self, broker: BrokerId, *, marked: bool = True) -> BrokerEpoch:
        server, path = self.session.server, znode_paths.broker(broker)
        held = server.nodes.get(znode_paths.incarnation(broker))
        leftover = [Delete(path, None)] if path in server.nodes else []
        mine = [mark(broker, held, whole=True)] if marked else []
        assert server.apply([*leftover, Create(path, ephemeral=True), *mine], 1).ok
        return BrokerEpoch(server.nodes[path].stat.czxid)

    def guard(self, change: IsrChange) -> object:
        return guards(self.session, [change], self.known.get)[0]


@pytest.fixture
def brokers(session) -> Brokers:
    return Brokers(session)


def check(version: int, broker: BrokerId = TWO) -> tuple[Check, ...]:
    return (Check(znode_paths.incarnation(broker), version),)


def test_an_incarnation_is_created_then_counts_on(session) -> None:
    path, put = znode_paths.incarnation(TWO), session.server.put
    created = mark(TWO, None, whole=False)
    assert (created.path, lost(created.data, epoch=7)) == (path, NO_LOSS), "nothing was there to be lost"
    again = mark(TWO, put(path, created.data), whole=False)
    assert (again.path, again.version, lost(again.data, epoch=9)) == (path, 0, 9)
    held = put(path, again.data)
    later = mark(TWO, held, whole=True)
    assert (later.version, lost(later.data, epoch=99)) == (1, held.stat.mzxid), "no controller may have seen that one"
    assert lost(mark(TWO, put(path, later.data), whole=True).data, epoch=99) == held.stat.mzxid


def test_registrations_of_one_process_name_its_first_and_another_begins_again(session) -> None:
    path, put = znode_paths.incarnation(TWO), session.server.put
    first = put(path, mark(TWO, None, whole=True, process="a").data)
    one = first.stat.mzxid
    assert decode_process(first.data, epoch=one) == ("a", one)
    held = first
    for _ in range(2):
        held = put(path, mark(TWO, held, whole=True, process="a").data)
        assert held.stat.mzxid > one
        assert decode_process(held.data, epoch=held.stat.mzxid) == ("a", one)
    other = put(path, mark(TWO, held, whole=True, process="b").data)
    assert decode_process(other.data, epoch=other.stat.mzxid) == ("b", other.stat.mzxid)
    assert decode_process(mark(TWO, other, whole=True).data, epoch=99) == ("", None), "as older versions write"
    assert lost(b'{"whole": true, "process": 7, "since": -1}', epoch=99) == NO_LOSS


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b'{"version": 1}', b'{"whole": true, "lost_epoch": -3}'])
def test_who_does_not_say_whether_anything_was_lost_may_have_lost_it(session, data: bytes) -> None:
    assert lost(data, epoch=5) == 5
    held = session.server.put(znode_paths.incarnation(TWO), data)
    assert lost(mark(TWO, held, whole=True).data, epoch=99) == held.stat.mzxid


def test_a_loss_told_by_another_zookeeper_is_not_one_of_the_future() -> None:
    assert lost(b'{"whole": true, "lost_epoch": 1000}', epoch=5) == 5


def test_who_joins_is_checked_to_be_the_incarnation_that_was_judged(brokers: Brokers) -> None:
    brokers.register(TWO)
    brokers.session.server.put(STATE)
    assert brokers.guard(joins(brokers.register(TWO))) == check(1)


def test_who_registered_again_does_not_join_by_the_log_of_before(brokers: Brokers) -> None:
    judged = brokers.register(TWO)
    brokers.known[TWO] = judged
    brokers.register(TWO)
    brokers.session.server.put(STATE)
    assert brokers.guard(joins(judged)) == RESTARTED


def test_who_is_dead_does_not_join(brokers: Brokers) -> None:
    judged = brokers.register(TWO)
    brokers.session.server.put(STATE)
    brokers.session.server.remove(znode_paths.broker(TWO))
    assert brokers.guard(joins(judged)) == RESTARTED


def test_who_stays_is_checked_not_to_register_again(brokers: Brokers) -> None:
    brokers.register(TWO)
    brokers.session.server.put(STATE)
    assert brokers.guard(STAYING) == check(0)


def test_who_is_dead_stays_while_nobody_comes_in_its_place(brokers: Brokers) -> None:
    brokers.register(TWO)
    brokers.session.server.put(STATE)
    brokers.session.server.remove(znode_paths.broker(TWO))
    assert brokers.guard(STAYING) == check(0)


def test_who_registered_after_the_last_decision_does_not_stay_unnoticed(brokers: Brokers) -> None:
    brokers.session.server.put(STATE)
    brokers.register(TWO)
    assert brokers.guard(STAYING) == RESTARTED


def test_the_leader_itself_is_not_checked(brokers: Brokers) -> None:
    brokers.session.server.put(STATE)
    brokers.register(ONE)
    assert brokers.guard(msgspec.structs.replace(STAYING, isr=(ONE,))) == ()


def test_who_marks_no_incarnation_joins_as_the_one_that_metadata_knows(brokers: Brokers) -> None:
    brokers.session.server.put(STATE)
    epoch = brokers.register(TWO, marked=False)
    assert brokers.guard(STAYING) == ()
    assert brokers.guard(joins(epoch)) == RESTARTED
    brokers.known[TWO] = epoch
    assert brokers.guard(joins(epoch)) == ()


def test_an_older_program_that_took_a_brokers_place_can_join_although_another_mark_is_left(brokers: Brokers) -> None:
    brokers.register(TWO)
    brokers.session.server.put(STATE)
    brokers.known[TWO] = epoch = brokers.register(TWO, marked=False)
    assert brokers.guard(joins(epoch)) == ()


def test_who_registers_between_two_reads_of_one_look_is_another_incarnation(brokers: Brokers) -> None:
    brokers.known[TWO] = judged = brokers.register(TWO)
    brokers.session.server.put(STATE)
    server, session = brokers.session.server, brokers.session

    def read_many(paths):
        for path in paths:
            if path == znode_paths.incarnation(TWO):
                brokers.register(TWO)
            yield server.nodes.get(path)

    session.read_many = lambda paths: list(read_many(paths))
    assert brokers.guard(joins(judged)) == RESTARTED


def test_a_state_that_was_written_meanwhile_is_a_conflict(brokers: Brokers) -> None:
    server = brokers.session.server
    server.put(STATE)
    server.put(STATE)
    assert brokers.guard(STAYING) == Refused("the state is another one by now", conflict=True)


def test_a_server_that_is_behind_is_asked_again_after_a_sync(brokers: Brokers) -> None:
    session = brokers.session
    brokers.register(TWO)
    session.sync = lambda path: session.server.put(STATE)
    assert brokers.guard(STAYING) == check(0)


def test_many_changes_cost_one_read(brokers: Brokers) -> None:
    partitions = [TopicPartition("flights", number) for number in range(100)]
    brokers.register(TWO)
    brokers.register(THREE)
    for partition in partitions:
        brokers.session.server.put(znode_paths.partition_state(partition))
    reads: list[int] = []
    read_many = brokers.session.read_many
    brokers.session.read_many = lambda paths: (reads.append(len(paths)), read_many(paths))[1]
    wanted = [msgspec.structs.replace(STAYING, topic_partition=each, isr=(ONE, TWO, THREE)) for each in partitions]
    assert guards(brokers.session, wanted, brokers.known.get) == [check(0) + check(0, THREE)] * 100
    assert reads == [104]
