from __future__ import annotations

import threading
from collections.abc import Callable
from uuid import UUID

import msgspec
import pytest

from regency.broker_agent.ports import IsrChange, IsrNotWritten, IsrOutcome, IsrUnknown, IsrWritten
from regency.broker_agent.registry import incarnations
from regency.broker_agent.registry.isr_store import NOTIFY_PARTITIONS, IsrWriter
from regency.model import znodes
from regency.model.clock import ManualClock
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition, ZkVersion
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.session import Create, Delete, ZkError

FLIGHTS = TopicPartition("flights", 0)
STATE = znode_paths.partition_state(FLIGHTS)
ME, THREE = BrokerId(1), BrokerId(3)


def isr(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(broker) for broker in brokers)


def state(members: tuple[BrokerId, ...], leader: int = 1, leader_epoch: int = 4) -> bytes:
    decided = LeaderAndIsr(BrokerId(leader), LeaderEpoch(leader_epoch), members)
    return znodes.encode_state(LeaderIsrAndControllerEpoch(decided, ControllerEpoch(2)))


def change(members: tuple[BrokerId, ...], version: int = 0, partition: TopicPartition = FLIGHTS) -> IsrChange:
    return IsrChange(
        partition,
        TopicId(UUID(int=1)),
        ME,
        LeaderEpoch(4),
        ControllerEpoch(2),
        members,
        ZkVersion(version),
        "3 stopped fetching",
        isr(1, 2, 3),
    )


class Writing:
    """A writer whose thread is run by the test until it has nothing to do."""

    def __init__(self, session, loop) -> None:
        self.session, self.loop = session, loop
        self.clock = ManualClock()
        self.decided: list[IsrChange] = []
        self.outcomes: list[IsrOutcome] = []
        self.owner: int | None = session.generation
        self.peers: dict[BrokerId, BrokerEpoch] = {}
        self.writer = IsrWriter(
            ME,
            session,
            self.clock,
            loop.post,
            lambda: self.owner,
            lambda change, _: self.decided.append(change),
            self.peers.get,
        )

    @property
    def written(self) -> list[IsrOutcome]:
        """The outcome of a write that is the last one of the state."""
        stat = self.session.server.nodes[STATE].stat
        return [IsrWritten(ZkVersion(stat.version))]

    def submit(self, wanted: IsrChange) -> None:
        self.writer.submit(wanted, self.outcomes.append)

    def run(self) -> None:
        """One turn of the writer's thread, then the data loop."""
        batch = self.writer._next_batch()
        if batch:
            self.writer._write(batch)
        self.writer._announce()
        self.loop.run()

    def notifications(self) -> list[tuple[TopicPartition, ...]]:
        server = self.session.server
        parent = znode_paths.ISR_CHANGE_NOTIFICATION
        return [znodes.decode_isr_change(name, server.nodes[f"{parent}/{name}"].data) for name in server.names(parent)]


@pytest.fixture
def writing(zookeeper, session, loop) -> Writing:
    zookeeper.put(znode_paths.broker(ME), owner=session.session_id)
    zookeeper.put(STATE, state(isr(1, 2, 3)))
    return Writing(session, loop)


def test_a_change_is_written_at_the_known_version_and_goes_to_the_history(writing: Writing) -> None:
    writing.submit(change(isr(1, 2)))
    writing.run()
    assert writing.outcomes == writing.written
    assert writing.session.server.nodes[STATE].data == state(isr(1, 2))
    assert [decided.why for decided in writing.decided] == ["3 stopped fetching"]


def test_a_burst_is_announced_once_when_it_is_over(writing: Writing) -> None:
    other = TopicPartition("flights", 1)
    writing.session.server.put(znode_paths.partition_state(other), state(isr(1, 2, 3)))
    writing.submit(change(isr(1, 2)))
    writing.submit(change(isr(1, 2), partition=other))
    writing.run()
    assert writing.notifications() == []
    writing.clock.advance(50)
    writing.run()
    assert writing.notifications() == [(FLIGHTS, other)]


def test_a_stream_of_changes_is_announced_within_half_a_second(writing: Writing) -> None:
    for turn in range(12):
        writing.submit(change(isr(1, 2) if turn % 2 else isr(1, 3), version=turn))
        writing.run()
        writing.clock.advance(49)
    assert writing.notifications() == [(FLIGHTS,)]


def test_a_notification_names_no_more_partitions_than_a_znode_has_room_for(writing: Writing) -> None:
    """ZooKeeper takes a megabyte (jute.maxbuffer); these topics have names as long as they may be."""
    partitions = [TopicPartition("t" * 249, number) for number in range(NOTIFY_PARTITIONS + 1)]
    for partition in partitions:
        writing.writer._to_announce(partition)
    writing.clock.advance(1_000)
    writing.run()
    writing.run()
    assert writing.notifications() == [tuple(partitions[:-1]), tuple(partitions[-1:])]
    assert max(len(node.data) for node in writing.session.server.nodes.values()) < 1_000_000


def test_somebody_elses_write_is_left_alone(writing: Writing) -> None:
    writing.session.server.put(STATE, state(isr(2, 3), leader=2, leader_epoch=5))
    writing.submit(change(isr(1, 2)))
    writing.run()
    (outcome,) = writing.outcomes
    assert isinstance(outcome, IsrUnknown) and "leader 2, leader epoch 5" in outcome.why
    assert writing.session.server.nodes[STATE].data == state(isr(2, 3), leader=2, leader_epoch=5)
    assert writing.decided == []


def test_a_write_whose_reply_was_lost_is_recognised_when_it_is_sent_again(writing: Writing) -> None:
    writing.session.lose_replies = 1
    writing.submit(change(isr(1, 2)))
    writing.run()
    assert writing.outcomes == []
    writing.run()
    assert writing.outcomes == writing.written


def test_a_write_that_never_left_waits_for_contact(writing: Writing) -> None:
    writing.session.suspend()
    writing.submit(change(isr(1, 2)))
    writing.run()
    assert writing.outcomes == [] and writing.session.multis == []
    writing.session.resume()
    writing.run()
    assert writing.outcomes == writing.written


def test_a_new_session_never_writes_what_was_decided_under_the_old_one(writing: Writing) -> None:
    writing.session.suspend()
    writing.submit(change(isr(1, 2)))
    writing.run()
    writing.session.expire()
    writing.session.new_session()
    writing.run()
    assert writing.outcomes == [IsrNotWritten("the session that owned the registration is gone")]
    assert writing.session.multis == []


def test_a_write_that_went_unanswered_before_its_session_ended_may_have_happened(writing: Writing) -> None:
    writing.session.lose_replies = 1
    writing.submit(change(isr(1, 2)))
    writing.run()
    writing.session.expire()
    writing.session.new_session()
    writing.run()
    assert writing.outcomes == [IsrUnknown("the session that owned the registration is gone")]


def test_a_write_that_went_unanswered_is_looked_for_once_the_registration_was_taken_away(writing: Writing) -> None:
    writing.session.lose_replies = 1
    writing.submit(change(isr(1, 2)))
    writing.run()
    writing.session.server.remove(znode_paths.broker(ME))
    writing.run()
    assert writing.outcomes == writing.written


def test_the_controller_is_asked_to_look_by_a_notification(writing: Writing) -> None:
    other = TopicPartition("flights", 1)
    writing.writer.ask(other)
    writing.submit(change(isr(1, 2)))
    writing.run()
    writing.clock.advance(50)
    writing.run()
    assert writing.notifications() == [(other, FLIGHTS)]


def test_why_nothing_can_be_written_is_told_once(writing: Writing, caplog: pytest.LogCaptureFixture) -> None:
    writing.session.server.remove(znode_paths.broker(ME))
    with caplog.at_level("INFO"):
        for _ in range(3):
            writing.submit(change(isr(1, 2)))
            writing.run()
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "this broker's registration is gone"
    ]


def test_nothing_is_written_while_this_broker_is_not_registered(writing: Writing) -> None:
    writing.owner = None
    writing.submit(change(isr(1, 2)))
    writing.loop.run()
    assert writing.outcomes == [IsrNotWritten("this broker is not registered")]


def test_nothing_is_written_once_the_registration_was_taken_away(writing: Writing) -> None:
    writing.session.server.remove(znode_paths.broker(ME))
    writing.submit(change(isr(1, 2)))
    writing.run()
    assert writing.outcomes == [IsrNotWritten("this broker's registration is gone")]
    assert writing.session.server.nodes[STATE].data == state(isr(1, 2, 3))


def test_nothing_is_written_of_a_partition_that_is_gone(writing: Writing) -> None:
    writing.session.server.remove(STATE)
    writing.submit(change(isr(1, 2)))
    writing.run()
    assert writing.outcomes == [IsrNotWritten("the partition's state is gone")]


def test_a_reply_nobody_can_read_is_made_up_for_by_looking(writing: Writing) -> None:
    writing.session.multi_pipelined = lambda batches, generation: [ZkError("unreadable") for _ in batches]
    writing.submit(change(isr(1, 2)))
    writing.run()
    assert writing.outcomes == [IsrNotWritten("it was sent, but never arrived, and shall not be sent again")]


def test_a_state_nobody_can_read_is_reported_as_unknown(writing: Writing) -> None:
    writing.session.server.put(STATE, b"{")
    writing.submit(change(isr(1, 2)))
    writing.run()
    (outcome,) = writing.outcomes
    assert isinstance(outcome, IsrUnknown) and STATE in outcome.why


def test_an_announcement_that_could_not_be_made_is_made_later(writing: Writing) -> None:
    writing.submit(change(isr(1, 2)))
    writing.run()
    writing.clock.advance(50)
    writing.session.lose_replies = 1
    writing.run()
    writing.session.server.remove(
        f"{znode_paths.ISR_CHANGE_NOTIFICATION}/" + writing.session.server.names(znode_paths.ISR_CHANGE_NOTIFICATION)[0]
    )
    writing.clock.advance(50)
    writing.run()
    assert writing.notifications() == [(FLIGHTS,)]


def test_the_thread_writes_what_is_submitted_and_ends_when_told(writing: Writing) -> None:
    written = threading.Event()
    writing.loop.post = lambda work: (work(), written.set())
    writing.writer._post = writing.loop.post
    thread = threading.Thread(target=writing.writer.run)
    thread.start()
    writing.submit(change(isr(1, 2)))
    assert written.wait(10)
    writing.writer.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert writing.outcomes == writing.written


@pytest.fixture
def joining(writing: Writing) -> Writing:
    """Two of three are in sync, and broker 3 asks to join as incarnation 70, which metadata knows."""
    writing.session.server.put(STATE, state(isr(1, 2)))
    writing.peers[THREE] = BrokerEpoch(70)
    return writing


def join() -> IsrChange:
    return msgspec.structs.replace(
        change(isr(1, 2, 3), version=1), previous=isr(1, 2), joining=((THREE, BrokerEpoch(70)),)
    )


def test_nobody_joins_unchecked_who_restarted_while_the_change_waited(joining: Writing) -> None:
    joining.session.suspend()
    joining.submit(join())
    joining.run()
    joining.peers[THREE] = BrokerEpoch(80)
    joining.session.resume()
    joining.run()
    assert joining.outcomes == [IsrNotWritten("[3] restarted or left meanwhile")]
    assert joining.session.multis == []


@pytest.mark.parametrize("arrived", [True, False])
def test_an_unanswered_join_is_not_sent_again_after_a_restart_but_looked_for(joining: Writing, arrived: bool) -> None:
    joining.session.lose_replies = 1
    if not arrived:
        joining.session.server.apply = lambda ops, session_id: None
    joining.submit(join())
    joining.run()
    del joining.peers[THREE]
    joining.run()
    not_done = [IsrNotWritten("it was sent, but never arrived, and shall not be sent again")]
    assert joining.outcomes == (joining.written if arrived else not_done)
    assert len(joining.session.multis) - len(joining.notifications()) == 1


def registers(server, broker: BrokerId) -> BrokerEpoch:
    """A registration of somebody else, which replaces an earlier one."""
    path = znode_paths.broker(broker)
    leftover = [Delete(path, None)] if path in server.nodes else []
    held = server.nodes.get(znode_paths.incarnation(broker))
    assert server.apply(
        [*leftover, Create(path, ephemeral=True), incarnations.mark(broker, held, whole=True)], 0x999
    ).ok
    return BrokerEpoch(server.nodes[path].stat.czxid)


def test_a_join_lands_while_the_incarnation_that_was_judged_is_registered(joining: Writing) -> None:
    epoch = registers(joining.session.server, THREE)
    joining.submit(msgspec.structs.replace(join(), joining=((THREE, epoch),)))
    joining.run()
    assert joining.outcomes == joining.written
    assert joining.session.server.nodes[STATE].data == state(isr(1, 2, 3))


@pytest.mark.parametrize("replies", [True, False])
def test_a_join_does_not_land_when_its_broker_registers_again_on_the_way(joining: Writing, replies: bool) -> None:
    server = joining.session.server
    epoch = registers(server, THREE)
    apply = server.apply

    def late(ops, session_id):
        server.apply = apply
        registers(server, THREE)
        return apply(ops, session_id)

    server.apply = late
    joining.session.lose_replies = 0 if replies else 1
    joining.submit(msgspec.structs.replace(join(), joining=((THREE, epoch),)))
    joining.run()
    if not replies:
        joining.run()
    (outcome,) = joining.outcomes
    assert isinstance(outcome, IsrNotWritten)
    assert server.nodes[STATE].data == state(isr(1, 2))
    assert not joining.writer._waiting


def test_a_shrink_does_not_hide_that_another_member_has_restarted(writing: Writing) -> None:
    registers(writing.session.server, BrokerId(2))  # after the last write of the state
    writing.submit(change(isr(1, 2)))
    writing.run()
    assert writing.outcomes == [IsrNotWritten("[2] restarted or left meanwhile")]
    writing.session.server.put(STATE, state(isr(1, 2, 3)))  # the controller has looked
    writing.submit(change(isr(1, 2), version=1))
    writing.run()
    assert writing.outcomes[1:] == writing.written


def test_others_of_a_batch_are_written_when_one_is_refused(writing: Writing) -> None:
    server, other = writing.session.server, TopicPartition("flights", 1)
    registers(server, BrokerId(2))
    server.put(znode_paths.partition_state(other), state(isr(1, 2, 3)))
    writing.submit(change(isr(1, 2)))
    writing.submit(change(isr(1, 2), partition=other))
    writing.run()
    assert writing.outcomes == [IsrNotWritten("[2] restarted or left meanwhile"), IsrWritten(ZkVersion(1))]


def test_nothing_is_written_over_a_state_that_was_written_before_the_look(writing: Writing) -> None:
    writing.session.server.put(STATE, state(isr(2, 3), leader=2, leader_epoch=5))
    writing.submit(change(isr(1, 2)))
    writing.run()
    assert isinstance(writing.outcomes[0], IsrUnknown)
    assert writing.session.multis == []


def test_changes_keep_their_order_when_they_are_sent_again(writing: Writing) -> None:
    others = [TopicPartition("flights", number) for number in (1, 2)]
    for other in others:
        writing.session.server.put(znode_paths.partition_state(other), state(isr(1, 2, 3)))
    order: list[int] = []

    def note(number: int) -> Callable[[IsrOutcome], None]:
        return lambda _: order.append(number)

    writing.session.suspend()
    for number, partition in enumerate([FLIGHTS, *others]):
        writing.writer.submit(msgspec.structs.replace(change(isr(1, 2)), topic_partition=partition), note(number))
    writing.run()
    writing.session.resume()
    writing.run()
    assert order == [0, 1, 2]


def test_a_change_that_waits_is_given_up_where_its_replica_is_deleted_and_others_are_written(writing: Writing) -> None:
    other = TopicPartition("flights", 1)
    writing.session.server.put(znode_paths.partition_state(other), state(isr(1, 2, 3)))
    writing.submit(change(isr(1, 2)))
    writing.submit(change(isr(1, 3), partition=other))
    assert writing.writer.withdraw(FLIGHTS)
    writing.run()
    assert writing.outcomes == [IsrNotWritten("its replica is deleted"), IsrWritten(ZkVersion(1))]
    assert writing.session.server.nodes[STATE].data == state(isr(1, 2, 3))
    assert writing.session.server.nodes[znode_paths.partition_state(other)].data == state(isr(1, 3))


def test_a_change_that_is_on_its_way_is_waited_for_before_its_replica_is_deleted(writing: Writing) -> None:
    writing.submit(change(isr(1, 2)))
    batch = writing.writer._next_batch()
    assert not writing.writer.withdraw(FLIGHTS)
    writing.session.lose_replies = 1
    writing.writer._write(batch)
    assert not writing.writer.withdraw(FLIGHTS)
    writing.run()
    assert writing.writer.withdraw(FLIGHTS)
    assert writing.outcomes == writing.written
