"""Deletions of many topics, and deletions that the next controller goes on with."""

from __future__ import annotations

from contextlib import suppress

import pytest

from regency.controller.events import CreateTopics, NewTopic, NotController
from regency.controller.topic_deletion_requests import DeleteTopics, TopicRef
from regency.model import znode_paths as paths
from regency.model import znodes
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2 as pb
from regency.runtime.zk_session import ZkSessionLost


@pytest.mark.timeout(20)
def test_a_thousand_topics_take_a_bounded_number_of_round_trips_and_requests(ruled):
    # KAFKA-9499
    names = [f"topic-{number}" for number in range(1_000)]
    wanted = tuple(NewTopic(name, 2, 3) for name in names)
    for start in range(0, len(wanted), 100):
        ruled.candidates[0].ask(CreateTopics(wanted[start : start + 100], validate_only=False))
    for agent in ruled.agents.values():
        agent.received.clear()
    session = ruled.candidates[0].session
    session.round_trips.clear()

    ruled.candidates[0].ask(DeleteTopics(tuple(map(TopicRef, names))))

    assert ruled.ensemble.names(paths.TOPICS) == ()
    assert ruled.ensemble.names(paths.DELETE_TOPICS) == ()
    assert [len(ruled.agents[broker].of(pb.StopReplicaRequest)) for broker in (1, 2, 3)] == [1, 1, 1]
    assert all(len(agent.received) < 20 for agent in ruled.agents.values())
    assert len(session.round_trips) < 40, session.round_trips


class DiesAtWrite:
    """The candidate's session ends at its nth write from now on, before it or after it took effect."""

    def __init__(self, session, nth, *, after):
        self.writes = 0
        self._session, self._write, self._nth, self._after = session, session.multi, nth, after
        session.multi = self

    def __call__(self, ops, *, generation=None):
        self.writes += 1
        if self.writes != self._nth:
            return self._write(ops, generation=generation)
        if self._after:
            self._write(ops, generation=generation)
        self._session.expire()
        raise ZkSessionLost("The session has ended.")


def deletion_cut_short(world, nth, *, after):
    """Delete topics t and u, while whoever rules dies at its nth write. Returns how many writes there were."""
    world.start_brokers(1, 2, 3)
    first = world.candidate(1)
    world.candidate(2)
    world.write_topic("t", {0: [1, 2, 3], 1: [2, 3, 1]})
    world.write_topic("u", {0: [1]})
    world.ensemble.put(paths.topic_config("t"), znodes.encode_config({"retention.ms": "1"}))
    dying = DiesAtWrite(first.session, nth, after=after)
    world.ensemble.put(paths.delete_topic("u"), b"")
    with suppress(NotController):
        first.ask(DeleteTopics((TopicRef("t"),)))
    world.clock.advance(20_000)
    world.settle()
    return dying.writes


def writes_of_a_deletion(new_world):
    return deletion_cut_short(new_world(), 0, after=False)


@pytest.mark.parametrize("after", [False, True])
def test_a_deletion_survives_the_controllers_death_at_every_write(new_world, after):
    writes = writes_of_a_deletion(new_world)
    assert writes >= 6
    for nth in range(1, writes + 1):
        world = new_world()
        deletion_cut_short(world, nth, after=after)
        if world.ensemble.nodes.get(paths.topic("t")) and not world.ensemble.nodes.get(paths.delete_topic("t")):
            (outcome,) = next(each for each in world.candidates if each.rules).ask(DeleteTopics((TopicRef("t"),)))
            assert outcome.error is ErrorCode.NONE, nth  # it was never marked: the client asks again
        assert world.term.epoch == 2, nth
        assert world.is_gone("t"), nth
        assert world.is_gone("u"), nth
