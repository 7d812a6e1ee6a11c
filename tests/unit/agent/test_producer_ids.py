from __future__ import annotations

import asyncio

import pytest

from regency.broker_agent.registry.producer_ids import (
    BLOCK_SIZE,
    LARGEST_ID,
    ProducerIds,
    ProducerIdsExhausted,
    ProducerIdsUnavailable,
    ProducerIdsUnreadable,
    take_block,
)
from regency.model import znodes
from regency.model.ids import BrokerId, ProducerId
from regency.model.znodes import paths as znode_paths

PATH = znode_paths.PRODUCER_IDS


class AtOnce:
    """A worker pool without threads."""

    def __init__(self) -> None:
        self.jobs = 0

    def submit(self, work, done) -> None:
        self.jobs += 1

        def run() -> None:
            try:
                outcome = work()
            except Exception as error:  # noqa: BLE001 (carried to `done`)
                outcome = error
            done(outcome)

        asyncio.get_running_loop().call_soon(run)


def test_ids_of_a_block_are_handed_out_once_each_and_zookeeper_is_asked_ahead_of_need(session) -> None:
    worker = AtOnce()

    async def scenario() -> list[ProducerId]:
        ids = ProducerIds(BrokerId(1), session, worker)
        return await asyncio.gather(*(ids.allocate() for _ in range(BLOCK_SIZE)))

    assert asyncio.run(scenario()) == list(range(BLOCK_SIZE))
    assert worker.jobs == 2


def test_ids_are_at_hand_while_zookeeper_is_away(session) -> None:
    async def scenario() -> list[ProducerId]:
        ids = ProducerIds(BrokerId(1), session, AtOnce())
        ids.prefetch()
        await asyncio.sleep(0)
        session.suspend()
        taken = [await ids.allocate() for _ in range(BLOCK_SIZE)]
        with pytest.raises(ProducerIdsUnavailable):
            await ids.allocate()
        return taken

    assert asyncio.run(scenario()) == list(range(BLOCK_SIZE))


def test_the_next_block_is_one_that_nobody_else_took(session, another_session) -> None:
    async def scenario() -> ProducerId:
        ids = ProducerIds(BrokerId(1), session, AtOnce())
        await ids.allocate()
        take_block(another_session, BrokerId(2))
        for _ in range(BLOCK_SIZE - 1):
            await ids.allocate()
        return await ids.allocate()

    assert asyncio.run(scenario()) == 2 * BLOCK_SIZE


def test_the_block_is_written_in_kafkas_format(session) -> None:
    session.server.put(PATH)
    take_block(session, BrokerId(1))
    block = take_block(session, BrokerId(7))
    assert block == znodes.ProducerIdBlock(BrokerId(7), ProducerId(1000), ProducerId(1999))
    assert znodes.decode_producer_id_block(PATH, session.read(PATH).data) == block


def test_two_brokers_never_get_the_same_block(session, another_session) -> None:
    def racing(ops, session_id, apply=session.server.apply):
        if session_id == session.session_id:
            session.server.apply = apply
            take_block(another_session, BrokerId(2))
        return apply(ops, session_id)

    session.server.put(PATH)
    session.server.apply = racing
    assert take_block(session, BrokerId(1)).first == 1000


def test_a_block_whose_write_was_not_acknowledged_is_left_unused(session) -> None:
    session.server.put(PATH)
    session.lose_replies = 1
    with pytest.raises(ProducerIdsUnavailable):
        take_block(session, BrokerId(1))
    assert take_block(session, BrokerId(1)).first == 1000


def test_zookeeper_away_is_retriable_and_the_next_call_tries_again(session) -> None:
    async def scenario() -> ProducerId:
        ids = ProducerIds(BrokerId(1), session, AtOnce())
        session.suspend()
        with pytest.raises(ProducerIdsUnavailable) as refused:
            await ids.allocate()
        assert refused.value.retriable
        session.resume()
        return await ids.allocate()

    assert asyncio.run(scenario()) == 0


def test_a_block_nobody_can_read_hands_out_nothing(session) -> None:
    session.server.put(PATH, b"{}")
    with pytest.raises(ProducerIdsUnreadable, match=PATH):
        take_block(session, BrokerId(1))


def test_a_block_nobody_can_read_is_told_once_and_waited_for(session, caplog) -> None:
    async def scenario() -> ProducerId:
        session.server.put(PATH, b"{}")
        ids = ProducerIds(BrokerId(1), session, AtOnce())
        for _ in range(3):
            with pytest.raises(ProducerIdsUnavailable) as refused:
                await ids.allocate()
            assert refused.value.retriable
        block = znodes.ProducerIdBlock(BrokerId(2), ProducerId(0), ProducerId(4999))
        session.server.put(PATH, znodes.encode_producer_id_block(block))
        return await ids.allocate()

    assert asyncio.run(scenario()) == 5000
    [told] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert PATH in told


def test_zookeeper_away_is_not_told_by_the_ids_too(session, caplog) -> None:
    async def scenario() -> None:
        ids = ProducerIds(BrokerId(1), session, AtOnce())
        session.suspend()
        with pytest.raises(ProducerIdsUnavailable):
            await ids.allocate()

    asyncio.run(scenario())
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_ids_end_with_the_largest_number(session) -> None:
    last = znodes.ProducerIdBlock(BrokerId(1), ProducerId(LARGEST_ID - 10), ProducerId(LARGEST_ID))
    session.server.put(PATH, znodes.encode_producer_id_block(last))
    with pytest.raises(ProducerIdsExhausted):
        take_block(session, BrokerId(1))
