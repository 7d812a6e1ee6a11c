"""Deletions of many topics, and deletions that the next controller goes on with."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from regency.controller.events import NotController
from regency.controller.topics.creation import CreateTopics, NewTopic
from regency.controller.topics.deletion_requests import DeleteTopics, TopicRef
from regency.model import znodes
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb
from regency.runtime.zookeeper.session import ZkSessionLost


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


class Script:
    """Brokers that come and go, controllers that change, topics that are made and deleted, by chance."""

    def __init__(self, world, seed):
        self.world = world
        self.chance = random.Random(seed)
        self.alive = {1, 2, 3}
        self.rulers = 1
        self.number = 0
        self.kept, self.deleted = set(), set()
        world.start_brokers(1, 2, 3)
        world.candidate(1)

    def step(self):
        self.chance.choice([self.kill, self.start, self.bounce, self.refuse, self.succeed, self.create, self.delete])()
        self.world.clock.advance(self.chance.choice((0, 300, 20_000)))
        self.world.settle()

    def kill(self):
        if self.alive:
            broker = self.chance.choice(sorted(self.alive))
            self.alive.discard(broker)
            self.world.kill_broker(broker)

    def start(self):
        for broker in sorted({1, 2, 3} - self.alive):
            self.alive.add(broker)
            self.world.start_broker(broker)

    def bounce(self):
        if self.alive:
            self.world.bounce(self.chance.choice(sorted(self.alive)))

    def refuse(self):
        """The next answers of a broker are errors."""
        if self.alive:
            agent = self.world.agents[self.chance.choice(sorted(self.alive))]
            agent.answers.append(pb.ControlResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))

    def succeed(self):
        self.rulers += 1
        self.world.candidate(self.rulers)
        self.world.candidates.pop(0).session.close()
        self.world.settle()

    def create(self):
        self.number += 1
        self.kept.add(f"t{self.number}")
        replicas = self.chance.sample([1, 2, 3], self.chance.randint(1, 3))
        self.world.write_topic(f"t{self.number}", {0: replicas, 1: replicas[::-1]})

    def delete(self):
        if self.kept:
            name = self.chance.choice(sorted(self.kept))
            self.kept.discard(name)
            self.deleted.add(name)
            self.world.mark(name)

    def end(self):
        """Everything works again."""
        self.start()
        for agent in self.world.agents.values():
            agent.answers.clear()
        for _ in range(3):
            self.world.clock.advance(20_000)
            self.world.settle()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_what_was_to_go_is_gone_and_the_rest_is_led(new_world, seed, caplog):
    script = Script(new_world(), seed)
    for _ in range(25):
        script.step()
    script.end()

    assert all(script.world.is_gone(name) for name in script.deleted)
    assert script.world.term.context.topics.keys() == script.kept
    assert all(script.world.state(name)[0] > 0 for name in script.kept)
    assert not [each.getMessage() for each in caplog.records if "cannot go from" in each.getMessage()]
