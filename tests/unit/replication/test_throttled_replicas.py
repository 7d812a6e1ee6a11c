"""Which replicas a throttle covers, and that what is changed has effect at once."""

from __future__ import annotations

import pytest

from regency.broker_agent.replication.fetcher.throttle import Throttles, unlimited
from regency.model.ids import BrokerId, TopicPartition
from regency.model.settings import BrokerSettings
from regency.model.settings.dynamic import ThrottleRates
from regency.model.settings.log_config import LogConfig

SETTINGS = BrokerSettings(
    broker_id=BrokerId(2), replication_quota_window_num=2, replication_quota_window_size_seconds=3
)
P0, P1, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Settings:
    """What a throttle asks for, to be changed."""

    def __init__(self) -> None:
        self.rates = ThrottleRates()
        self.configs: dict[str, LogConfig] = {}
        self.throttles = Throttles(SETTINGS, lambda: self.rates, lambda topic: self.configs.get(topic, LogConfig()))


@pytest.fixture
def settings() -> Settings:
    return Settings()


def test_each_side_has_its_own_list_and_only_its_own_broker_counts(settings) -> None:
    settings.configs["t"] = LogConfig(
        leader_replication_throttled_replicas=("0:2", "1:3"), follower_replication_throttled_replicas=("1:2", "0:12")
    )
    covered = {side: [name for name in (P0, P1, OTHER) if throttle.covers(name)] for side, throttle in _sides(settings)}
    assert covered == {"leader": [P0], "follower": [P1]}


def test_a_star_is_every_partition_of_the_topic(settings) -> None:
    settings.configs["t"] = LogConfig(leader_replication_throttled_replicas=("*",))
    leader = settings.throttles.leader
    assert [leader.covers(name) for name in (P0, P1, OTHER)] == [True, True, False]


def test_a_changed_list_counts_at_once(settings) -> None:
    leader = settings.throttles.leader
    for listed, covered in ((("0:2",), True), (("1:2",), False), ((), False), (("*",), True), (("0:2", "1:2"), True)):
        settings.configs["t"] = LogConfig(leader_replication_throttled_replicas=listed)
        assert leader.covers(P0) is covered, listed


def test_a_changed_rate_counts_at_once(settings) -> None:
    settings.configs["t"] = LogConfig(leader_replication_throttled_replicas=("*",))
    settings.rates = ThrottleRates(leader=100)
    leader = settings.throttles.leader
    leader.record(P0, 600, 1_000)
    assert leader.exceeded_until(1_000) == 7_000
    settings.rates = ThrottleRates(leader=200)
    assert leader.exceeded_until(1_000) is None
    settings.rates = ThrottleRates(leader=150)
    assert leader.exceeded_until(1_000) == 5_000
    settings.rates = ThrottleRates()
    assert leader.exceeded_until(1_000) is None


def test_only_throttled_replicas_are_counted_and_each_side_by_itself(settings) -> None:
    settings.configs["t"] = LogConfig(follower_replication_throttled_replicas=("0:2",))
    settings.rates = ThrottleRates(leader=1, follower=1)
    for throttle in (settings.throttles.leader, settings.throttles.follower):
        throttle.record(P1, 1_000, 0)
        throttle.record(OTHER, 1_000, 0)
        assert throttle.exceeded_until(0) is None
        throttle.record(P0, 1_000, 0)
    assert settings.throttles.leader.exceeded_until(0) is None
    assert settings.throttles.follower.exceeded_until(0) == 6_000


def test_nothing_is_held_back_without_settings() -> None:
    throttles = unlimited(SETTINGS)
    throttles.leader.record(P0, 1 << 40, 0)
    assert throttles.leader.exceeded_until(0) is None
    assert not throttles.leader.covers(P0)


def _sides(settings: Settings):
    return ("leader", settings.throttles.leader), ("follower", settings.throttles.follower)
