"""Whom a leader takes for the present incarnation of a follower, and how often it asks ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from regency.broker_agent.control.follower_epochs import ASK_EVERY_MS, FollowerEpochs
from regency.broker_agent.control.metadata_cache import MetadataCache
from regency.model.clock import ManualClock
from regency.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId
from regency.runtime.zookeeper.session import ZkConnectionLost

TWO = BrokerId(2)


class World(MetadataCache):
    """Metadata as the test tells it, and ZooKeeper's answers when it wants them."""

    def __init__(self) -> None:
        super().__init__()
        self.told: BrokerEpoch | None = None
        self.asked: list[BrokerId] = []
        self._answer: list[Callable[[BrokerEpoch | BaseException], None]] = []
        self.clock = ManualClock()
        self.epochs = FollowerEpochs(self, self._ask, self.clock)

    def broker_epoch(self, broker: BrokerId) -> BrokerEpoch | None:
        return self.told

    def _ask(self, broker: BrokerId, answered: Callable[[BrokerEpoch | BaseException], None]) -> None:
        self.asked.append(broker)
        self._answer.append(answered)

    def claim(self, epoch: int) -> None:
        self.epochs.confirm(TWO, BrokerEpoch(epoch))

    def answer(self, outcome: int | BaseException) -> None:
        self._answer.pop()(outcome if isinstance(outcome, BaseException) else BrokerEpoch(outcome))

    @property
    def known(self) -> BrokerEpoch | None:
        return self.epochs.broker_epoch(TWO)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("told", [None, BrokerEpoch(50)])
def test_an_incarnation_that_zookeeper_confirms_is_the_known_one_until_metadata_changes(world, told) -> None:
    world.told = told
    world.claim(60)
    assert world.known == told, "not before there is an answer"
    world.answer(60)
    assert world.known == 60
    world.told = BrokerEpoch(7)
    assert world.known == 7, "also where its number is lower: ZooKeeper was restored"


def test_what_zookeeper_confirmed_ends_with_the_registration_that_metadata_told_of(world) -> None:
    world.claim(60)
    world.answer(60)
    for told in (BrokerEpoch(60), None):
        world.told = told
        assert world.known == told, "dead, although nobody was known of when it was confirmed"


def test_a_forged_incarnation_tells_what_is_true_instead(world) -> None:
    world.told = BrokerEpoch(50)
    world.claim(2**62)
    world.answer(60)
    assert world.known == 60
    world.clock.advance(ASK_EVERY_MS)
    world.claim(2**62 + 1)
    world.answer(NO_BROKER_EPOCH)
    assert world.known == 60


def test_zookeeper_is_asked_once_about_an_incarnation(world) -> None:
    world.told = BrokerEpoch(50)
    for _ in range(3):
        world.claim(60)
        world.clock.advance(ASK_EVERY_MS)
    world.answer(50)
    world.clock.advance(ASK_EVERY_MS)
    world.claim(60)
    assert world.asked == [TWO]
    world.told = BrokerEpoch(55)
    world.claim(60)
    assert world.asked == [TWO] * 2, "metadata has moved on"


def test_a_flood_of_forged_incarnations_asks_once_in_a_while(world) -> None:
    for number in range(1_000):
        world.claim(1_000 + number)
        if world._answer:
            world.answer(50)
        world.clock.advance(ASK_EVERY_MS // 100)
    assert len(world.asked) == 10
    assert world.known == 50


def test_without_an_answer_it_is_asked_again(world) -> None:
    world.claim(60)
    world.answer(ZkConnectionLost("no contact"))
    world.claim(60)
    assert world.asked == [TWO]
    world.clock.advance(ASK_EVERY_MS)
    world.claim(60)
    assert world.asked == [TWO] * 2
