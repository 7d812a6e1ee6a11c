from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from regency.broker_agent.registry.topic_configs import TopicConfigs
from regency.model import znodes
from regency.model.ids import BrokerId
from regency.model.settings.dynamic import ThrottleRates
from regency.model.settings.log_config import LogConfig
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.session import ZkConnectionLost, Znode

BASE = LogConfig(retention_ms=1000)


class Following:
    """Topic settings over a ZooKeeper in memory."""

    def __init__(self, session, loop) -> None:
        self.server, self.session, self.loop = session.server, session, loop
        self.changes: list[tuple[str, int]] = []
        self.configs = TopicConfigs(
            BrokerId(1),
            BASE,
            session,
            loop,
            loop.post,
            loop.later,
            lambda configs: self.changes.extend((topic, config.retention_ms) for topic, config in configs.items()),
            lambda: frozenset(self.hosted),
            ThrottleRates(leader=7),
        )
        self.hosted: set[str] = set()
        self.throttles: list[ThrottleRates] = []
        self.configs.on_throttles = lambda: self.throttles.append(self.configs.rates())
        self.configs.watch()

    def put(self, topic: str, **config: str) -> None:
        named = {key.replace("_", "."): value for key, value in config.items()}
        self.server.put(znode_paths.topic_config(topic), znodes.encode_config(named))

    def notify(self, entity: str) -> None:
        number = self.server.zxid
        self.server.put(f"{znode_paths.config_change_prefix()}{number:010d}", znodes.encode_config_change(entity))
        self.loop.run()


@pytest.fixture
def following(session, loop) -> Following:
    return Following(session, loop)


def test_a_topic_without_settings_has_the_brokers(following: Following) -> None:
    following.configs.load(["flights"])
    assert following.configs.of("flights") == following.configs.of("never heard of") == BASE


def test_topics_that_come_and_go_are_forgotten_and_those_that_have_logs_are_not(following: Following) -> None:
    following.hosted = {"kept"}
    following.put("kept", retention_ms="5")
    following.configs.load(["kept"])
    for number in range(5_000):
        following.put("wanted", retention_ms=str(number))
        following.configs.load([f"gone-{number}", "wanted"])
        following.loop.run()
    assert len(following.configs._held) <= 1_002
    assert following.configs.of("kept").retention_ms == 5
    assert following.configs.of("wanted").retention_ms == 4_999


def test_settings_of_a_log_that_is_about_to_be_made_are_not_forgotten_by_an_earlier_look(following: Following) -> None:
    following.configs.load([f"gone-{number}" for number in range(1_001)])
    following.configs.load(["first"])
    following.put("second", retention_ms="5")
    following.configs.load(["second"])
    following.loop.run()
    assert following.configs.of("second").retention_ms == 5


def test_settings_are_read_over_the_brokers(following: Following) -> None:
    following.put("flights", retention_ms="5", min_insync_replicas="2")
    following.configs.load(["flights"])
    held = following.configs.of("flights")
    assert (held.retention_ms, held.min_insync_replicas, held.segment_bytes) == (5, 2, BASE.segment_bytes)


def test_a_notification_brings_the_new_settings(following: Following) -> None:
    following.configs.load(["flights", "planes"])
    following.put("flights", retention_ms="7")
    following.notify("topics/flights")
    assert following.changes == [("flights", 7)]
    following.notify("topics/flights")
    assert following.changes == [("flights", 7)], "nothing changed the second time"


def test_settings_found_while_a_new_log_is_made_hold_for_the_old_ones_too(following: Following) -> None:
    following.configs.load(["flights"])
    following.put("flights", retention_ms="7")

    following.configs.load(["flights"])
    following.loop.run()

    assert following.changes == [("flights", 7)]
    following.notify("topics/flights")
    assert following.changes == [("flights", 7)], "nothing changed the second time"


def test_settings_of_a_topic_made_anew_are_not_read_from_a_server_that_lags(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing notifies of what a topic is created with, so nothing would ever mend what was read too early."""
    following.put("flights", retention_ms="5")
    session = following.session
    lagging = [session.read(znode_paths.topic_config("flights"))]
    following.put("flights", retention_ms="7")
    read_many, synced = session.read_many, []
    monkeypatch.setattr(session, "sync", synced.append)
    monkeypatch.setattr(session, "read_many", lambda paths: read_many(paths) if synced else lagging)

    following.configs.load(["flights"])

    assert following.configs.of("flights").retention_ms == 7


def test_without_contact_settings_are_refused_at_once(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sync` would wait for contact, and everything that the controller says with it."""
    following.session.suspend()
    monkeypatch.setattr(following.session, "sync", lambda path: pytest.fail("waits for contact"))
    with pytest.raises(ZkConnectionLost):
        following.configs.load(["flights"])


def test_notifications_about_others_are_left_alone(following: Following) -> None:
    following.put("flights", retention_ms="7")
    following.notify("topics/flights")
    following.notify("brokers/1")
    assert following.changes == []


def test_a_notification_nobody_can_read_does_not_stop_the_next(following: Following) -> None:
    following.configs.load(["flights"])
    following.put("flights", retention_ms="7")
    following.server.put(f"{znode_paths.config_change_prefix()}0000000001", b"{")
    following.loop.run()
    following.notify("topics/flights")
    assert following.changes == [("flights", 7)]


def test_notifications_are_heeded_when_their_numbers_begin_anew(following: Following) -> None:
    following.configs.load(["flights"])
    for name in following.server.names(znode_paths.CONFIG_CHANGES):
        following.server.remove(f"{znode_paths.CONFIG_CHANGES}/{name}")
    following.server.put(f"{znode_paths.config_change_prefix()}9999999999", znodes.encode_config_change("topics/x"))
    following.loop.run()
    following.server.remove(f"{znode_paths.config_change_prefix()}9999999999")
    following.server.put(znode_paths.CONFIG_CHANGES)
    following.put("flights", retention_ms="7")
    following.notify("topics/flights")
    assert following.changes == [("flights", 7)]
    following.put("flights", retention_ms="8")
    following.notify("topics/flights")
    assert following.changes == [("flights", 7), ("flights", 8)]


def test_a_slow_read_that_found_nothing_does_not_hide_what_a_later_one_found(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    following.configs.load(["flights"])
    read_many, asked, go_on = following.session.read_many, threading.Event(), threading.Event()

    def slow(paths: Sequence[str]) -> list[Znode | None]:
        found = read_many(paths)
        asked.set()
        assert go_on.wait(10)
        return found

    monkeypatch.setattr(following.session, "read_many", slow)
    early = threading.Thread(target=following.configs.load, args=(["flights"],))
    early.start()
    assert asked.wait(10)
    monkeypatch.setattr(following.session, "read_many", read_many)
    following.put("flights", retention_ms="7")
    late = threading.Thread(target=following.configs.load, args=(["flights"],))
    late.start()
    late.join(0.05)
    go_on.set()
    early.join(10)
    late.join(10)
    assert following.configs.of("flights").retention_ms == 7


def test_after_a_reconnect_everything_known_is_read_again(following: Following) -> None:
    following.configs.load(["flights"])
    following.session.suspend()
    following.put("flights", retention_ms="9")
    following.loop.run()
    following.session.resume()
    following.loop.run()
    assert following.changes == [("flights", 9)]


def test_a_read_that_failed_is_tried_again(following: Following) -> None:
    following.configs.load(["flights"])
    following.put("flights", retention_ms="9")
    following.session.suspend()
    following.notify("topics/flights")
    assert following.changes == []
    following.session.connected = True
    following.loop.run_delayed()
    assert following.changes == [("flights", 9)]


def test_settings_of_a_topic_created_again_replace_those_of_the_first(following: Following) -> None:
    following.put("flights", retention_ms="7")
    following.configs.load(["flights"])
    following.server.remove(znode_paths.topic_config("flights"))
    following.configs.load(["flights"])
    assert following.configs.of("flights") == BASE


def test_settings_nobody_can_read_leave_the_brokers(following: Following) -> None:
    following.server.put(znode_paths.topic_config("flights"), b"[")
    following.configs.load(["flights"])
    assert following.configs.of("flights") == BASE


def test_without_contact_loading_says_so(following: Following) -> None:
    following.session.suspend()
    with pytest.raises(ZkConnectionLost):
        following.configs.load(["flights"])


def tell_brokers(following: Following, which: str, **config: str) -> None:
    named = {key.replace("_", "."): value for key, value in config.items()}
    following.server.put(f"{znode_paths.CONFIG_BROKERS}/{which}", znodes.encode_config(named))
    following.notify(f"brokers/{which}")


def test_what_all_brokers_are_told_stands_below_what_one_is_told_and_both_below_the_topics(
    following: Following,
) -> None:
    following.put("flights", retention_ms="7")
    following.configs.load(["flights", "planes"])
    tell_brokers(following, "<default>", log_retention_ms="20", log_segment_bytes="4096")
    assert following.changes == [("flights", 7), ("planes", 20)]
    tell_brokers(following, "1", log_retention_ms="30")
    assert following.changes[2:] == [("planes", 30)]
    planes, flights = following.configs.of("planes"), following.configs.of("flights")
    assert (planes.segment_bytes, flights.segment_bytes, flights.retention_ms) == (4096, 4096, 7)
    assert following.configs.of("new").retention_ms == 30


def test_a_default_of_all_brokers_is_told_in_pieces_and_the_newest_holds_in_the_end(following: Following) -> None:
    topics = [f"topic-{number}" for number in range(1_200)]
    following.configs.load(topics)
    told_at_once = []

    def change(retention_ms: int) -> None:
        content = znodes.encode_config({"log.retention.ms": str(retention_ms)})
        following.server.put(znode_paths.DEFAULT_BROKER_CONFIG, content)
        following.server.put(f"{znode_paths.config_change_prefix()}{retention_ms:010d}", encoded)

    encoded = znodes.encode_config_change("brokers/<default>")
    change(20)
    while following.loop.posted:
        before = len(following.changes)
        following.loop.posted.pop(0)()
        told_at_once.append(len(following.changes) - before)
        if told_at_once.count(500) == 1 and told_at_once[-1]:
            change(30)

    assert max(told_at_once) == 500
    assert dict(following.changes) == dict.fromkeys(topics, 30)


def test_what_other_brokers_are_told_is_none_of_ours(following: Following) -> None:
    following.configs.load(["flights"])
    tell_brokers(following, "2", log_retention_ms="30")
    assert following.changes == []


def test_one_bad_setting_does_not_cost_the_others(following: Following) -> None:
    following.put("flights", retention_ms="soon", min_insync_replicas="2", no_such="1")
    following.configs.load(["flights"])
    held = following.configs.of("flights")
    assert (held.retention_ms, held.min_insync_replicas) == (BASE.retention_ms, 2)


def test_what_is_no_notification_hides_none(following: Following) -> None:
    following.server.put(f"{znode_paths.CONFIG_CHANGES}/zebra", b"")
    following.configs.load(["flights"])
    following.configs.watch()
    following.put("flights", retention_ms="7")
    following.notify("topics/flights")

    assert following.configs.of("flights").retention_ms == 7


def test_rates_of_throttles_are_the_files_until_brokers_are_told_others(following: Following) -> None:
    leader, follower = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
    moves = "replica.alter.log.dirs.io.max.bytes.per.second"
    assert following.configs.rates() == ThrottleRates(leader=7)
    following.server.put(znode_paths.DEFAULT_BROKER_CONFIG, znodes.encode_config({leader: "1", follower: "2"}))
    following.server.put(znode_paths.broker_config(BrokerId(1)), znodes.encode_config({leader: "3", moves: "9"}))
    following.notify("brokers/1")
    assert following.configs.rates() == ThrottleRates(leader=3, follower=2, moves=9)
    following.server.put(znode_paths.broker_config(BrokerId(1)), znodes.encode_config({leader: "many"}))
    following.server.put(znode_paths.DEFAULT_BROKER_CONFIG, znodes.encode_config({}))
    following.notify("brokers/1")
    following.notify("brokers/1")
    assert following.throttles == [ThrottleRates(leader=3, follower=2, moves=9), ThrottleRates(leader=7)]


def test_a_changed_list_of_throttled_replicas_is_told(following: Following) -> None:
    key = "leader.replication.throttled.replicas"
    following.configs.load(["flights"])
    following.server.put(znode_paths.topic_config("flights"), znodes.encode_config({key: "0:1,1:2"}))
    following.notify("topics/flights")
    assert following.configs.of("flights").leader_replication_throttled_replicas == ("0:1", "1:2")
    assert len(following.throttles) == 1


def test_what_another_tool_asked_for_and_is_not_done_is_told_once(following: Following, caplog) -> None:
    def told() -> list[str]:
        said = [record.getMessage() for record in caplog.records if "not acted on" in record.getMessage()]
        caplog.clear()
        return said

    following.put("flights", preallocate="true", local_retention_ms="1")
    following.configs.load(["flights"])
    assert told() == [
        "topic flights has settings that are not acted on: without effect here: local.retention.ms",
        "topic flights has settings that are not acted on: preallocate: files grow as records are written",
    ]
    following.put("flights", preallocate="true", local_retention_ms="1", retention_ms="9")
    following.notify("topics/flights")
    assert told() == []
    following.put("flights", preallocate="true")
    following.notify("topics/flights")
    assert [line.rpartition("; ")[0] for line in told()] == [""]
    following.put("flights", cleanup_policy="delete", compression_type="producer", preallocate="false")
    following.notify("topics/flights")
    assert told() == []
