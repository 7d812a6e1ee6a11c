"""Settings changed at a client's request: what is written and told, what is refused, and whose write wins."""

from __future__ import annotations

import pytest

from regency.controller.store.configs import LASTS_MS
from regency.controller.topics.config_changes import AlterConfigs, ConfigAlteration, ResourceType
from regency.model import znodes
from regency.model.ids import TopicPartition
from regency.model.settings.dynamic import ConfigChange, Operation
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Create, SetData

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


def sets(resource_type: int, name: str, **values: str) -> ConfigAlteration:
    changes = (ConfigChange(key.replace("_", "."), Operation.SET, value) for key, value in values.items())
    return ConfigAlteration(resource_type, name, tuple(changes))


def alter(world, *resources: ConfigAlteration, incremental: bool = True, validate_only: bool = False):
    event = AlterConfigs(resources, incremental=incremental, validate_only=validate_only)
    return world.candidates[0].ask(event)


def stored(world, path: str) -> dict[str, str]:
    return znodes.decode_config(path, world.ensemble.nodes[path].data)


def notifications(world) -> list[str]:
    names = [f"{paths.CONFIG_CHANGES}/{name}" for name in world.ensemble.names(paths.CONFIG_CHANGES)]
    return [znodes.decode_config_change(path, world.ensemble.nodes[path].data) for path in names]


def test_settings_and_the_word_of_them_are_one_fenced_write(ruled):
    ruled.write_topic("t", {0: [1]})

    (outcome,) = alter(ruled, sets(TOPIC, "t", retention_ms="1000"))

    assert (outcome.error.name, outcome.message) == ("NONE", "")
    assert stored(ruled, paths.topic_config("t")) == {"retention.ms": "1000"}
    assert notifications(ruled) == ["topics/t"]
    (write,) = [ops for ops in ruled.ensemble.writes if any(op.path == paths.topic_config("t") for op in ops)]
    assert [type(op).__name__ for op in write] == ["Check", "Create", "Create"]
    assert write[0].path == paths.CONTROLLER_EPOCH

    alter(ruled, sets(TOPIC, "t", segment_bytes="2000"))

    assert stored(ruled, paths.topic_config("t")) == {"retention.ms": "1000", "segment.bytes": "2000"}
    assert isinstance(ruled.ensemble.writes[-1][1], SetData)
    assert notifications(ruled) == ["topics/t", "topics/t"]


def test_settings_of_a_broker_and_of_all_brokers_stand_where_agents_look(ruled):
    own, everyone = alter(ruled, sets(BROKER, "2", log_segment_bytes="1000"), sets(BROKER, "", min_insync_replicas="2"))

    assert (own.error.name, everyone.error.name) == ("NONE", "NONE")
    assert stored(ruled, paths.broker_config(2)) == {"log.segment.bytes": "1000"}
    assert stored(ruled, paths.DEFAULT_BROKER_CONFIG) == {"min.insync.replicas": "2"}
    assert notifications(ruled) == ["brokers/2", "brokers/<default>"]


@pytest.mark.parametrize(
    ("alteration", "error", "message"),
    [
        (sets(TOPIC, "u", retention_ms="1"), "UNKNOWN_TOPIC_OR_PARTITION", "There is no topic 'u'."),
        (sets(TOPIC, "t", retention_mss="1"), "INVALID_CONFIG", "no such topic key; did you mean retention.ms?"),
        (sets(TOPIC, "t", log_retention_ms="1"), "INVALID_CONFIG", "for topics it is retention.ms."),
        (sets(TOPIC, "t", retention_ms="soon"), "INVALID_CONFIG", "retention.ms=soon: expected a whole number"),
        (sets(BROKER, "1", num_partitions="3"), "INVALID_REQUEST", "cannot be changed while a broker runs"),
        (sets(BROKER, "1", auto_leader_rebalance_enable="false"), "INVALID_REQUEST", "cannot be changed"),
        (sets(BROKER, "1", segment_bytes="3000"), "INVALID_CONFIG", "for brokers it is log.segment.bytes."),
        (sets(BROKER, "1", log_cleaner_threads="3"), "INVALID_CONFIG", "has no effect in this system"),
        (sets(BROKER, "9", log_retention_ms="3"), "INVALID_REQUEST", "Broker '9' is not live; live are 1, 2, 3."),
        (sets(BROKER, "one", log_retention_ms="3"), "INVALID_REQUEST", "Broker 'one' is not live"),
        (sets(8, "1", some_logger="DEBUG"), "INVALID_REQUEST", "Resources of type 8 have no settings here."),
        (
            ConfigAlteration(TOPIC, "t", (ConfigChange("retention.ms", Operation.APPEND, "1"),)),
            "INVALID_CONFIG",
            "retention.ms is no list: append is not possible",
        ),
        (
            ConfigAlteration(TOPIC, "t", (ConfigChange("cleanup.policy", Operation.SUBTRACT, "delete"),)),
            "INVALID_CONFIG",
            "cleanup.policy=: expected values",
        ),
        (
            ConfigAlteration(TOPIC, "t", (ConfigChange("nonsense", Operation.DELETE),)),
            "INVALID_CONFIG",
            "no such topic key",
        ),
        (
            ConfigAlteration(
                TOPIC, "t", tuple(ConfigChange("retention.ms", Operation.SET, value) for value in ("1", "2"))
            ),
            "INVALID_REQUEST",
            "retention.ms stands 2 times in the request",
        ),
    ],
)
def test_what_cannot_be_changed_is_refused_and_the_rest_changed(ruled, alteration, error, message):
    ruled.write_topic("t", {0: [1]})
    ruled.write_topic("good", {0: [1]})

    refused, good = alter(ruled, alteration, sets(TOPIC, "good", retention_ms="1"))

    assert refused.error.name == error
    assert message in refused.message
    assert good.error.name == "NONE"
    assert notifications(ruled) == ["topics/good"]


def test_a_resource_named_twice_is_refused(ruled):
    ruled.write_topic("t", {0: [1]})

    outcomes = alter(ruled, sets(TOPIC, "t", retention_ms="1"), sets(TOPIC, "t", retention_ms="2"))

    assert [outcome.error.name for outcome in outcomes] == ["INVALID_REQUEST"] * 2
    assert notifications(ruled) == []


def test_a_topic_queued_for_deletion_is_left_alone(ruled):
    ruled.write_topic("t", {0: [1]})
    ruled.candidates[0].term.context.topics_to_delete.add("t")

    (refused,) = alter(ruled, sets(TOPIC, "t", retention_ms="1"))

    assert refused.error.name == "INVALID_TOPIC_EXCEPTION"


def test_lists_are_added_to_and_taken_from_with_the_brokers_value_as_the_first(ruled):
    ruled.write_topic("t", {0: [1]})

    def change(key: str, operation: Operation, value: str) -> str:
        (outcome,) = alter(ruled, ConfigAlteration(TOPIC, "t", (ConfigChange(key, operation, value),)))
        assert outcome.error.name == "NONE", outcome.message
        return stored(ruled, paths.topic_config("t"))[key]

    throttled = "leader.replication.throttled.replicas"
    assert change("cleanup.policy", Operation.APPEND, "delete") == "delete"
    assert change(throttled, Operation.APPEND, "0:1") == "0:1"
    assert change(throttled, Operation.APPEND, "0:1,1:2") == "0:1,1:2"
    assert change(throttled, Operation.SUBTRACT, "0:1,1:2") == ""


@pytest.mark.parametrize(
    ("operation", "value", "wanted"),
    [
        (Operation.SET, "compact", "compact"),
        (Operation.SET, "compact,delete", "compact,delete"),
        (Operation.APPEND, "compact", "delete,compact"),
    ],
)
@pytest.mark.parametrize(("kind", "name", "key"), [(TOPIC, "t", "cleanup.policy"), (BROKER, "", "log.cleanup.policy")])
def test_compaction_is_begun_by_a_change(ruled, operation, value, wanted, kind, name, key):
    ruled.write_topic("t", {0: [1]})

    (changed,) = alter(ruled, ConfigAlteration(kind, name, (ConfigChange(key, operation, value),)))

    assert changed.error.name == "NONE", changed.message
    path = paths.topic_config("t") if kind == TOPIC else paths.DEFAULT_BROKER_CONFIG
    assert stored(ruled, path) == {key: wanted}


def test_what_is_not_incremental_replaces_everything(ruled):
    ruled.write_topic("t", {0: [1]})
    alter(ruled, sets(TOPIC, "t", retention_ms="1000", segment_bytes="2000"))

    alter(ruled, sets(TOPIC, "t", segment_bytes="3000"), incremental=False)

    assert stored(ruled, paths.topic_config("t")) == {"segment.bytes": "3000"}


def test_what_another_tool_left_there_is_kept_and_can_be_deleted(ruled):
    ruled.write_topic("t", {0: [1]})
    ruled.ensemble.put(paths.topic_config("t"), b'{"version":1,"config":{"of.tomorrow":"1"},"by":"somebody"}')

    alter(ruled, sets(TOPIC, "t", retention_ms="1000"))

    assert stored(ruled, paths.topic_config("t")) == {"of.tomorrow": "1", "retention.ms": "1000"}
    assert b'"by":"somebody"' in ruled.ensemble.nodes[paths.topic_config("t")].data

    alter(ruled, ConfigAlteration(TOPIC, "t", (ConfigChange("of.tomorrow", Operation.DELETE),)))

    assert stored(ruled, paths.topic_config("t")) == {"retention.ms": "1000"}


def test_settings_that_cannot_be_read_are_not_overwritten(ruled):
    ruled.write_topic("t", {0: [1]})
    ruled.ensemble.put(paths.topic_config("t"), b"{nonsense")

    (refused,) = alter(ruled, sets(TOPIC, "t", retention_ms="1000"))

    assert refused.error.name == "UNKNOWN_SERVER_ERROR"
    assert ruled.ensemble.nodes[paths.topic_config("t")].data == b"{nonsense"


def test_validation_alone_writes_nothing(ruled):
    ruled.write_topic("t", {0: [1]})
    writes = len(ruled.ensemble.writes)

    good, bad = alter(
        ruled, sets(TOPIC, "t", retention_ms="1"), sets(BROKER, "1", retention_ms="x"), validate_only=True
    )

    assert (good.error.name, bad.error.name) == ("NONE", "INVALID_CONFIG")
    assert len(ruled.ensemble.writes) == writes


@pytest.mark.parametrize("there_before", [False, True])
def test_settings_written_by_somebody_else_meanwhile_are_kept(ruled, there_before):
    ruled.write_topic("t", {0: [1]})
    path = paths.topic_config("t")
    if there_before:
        ruled.ensemble.put(path, znodes.encode_config({}))
    ruled.candidates[0].session.before_write = lambda: ruled.ensemble.put(
        path, znodes.encode_config({"segment.bytes": "5000"})
    )

    (outcome,) = alter(ruled, sets(TOPIC, "t", retention_ms="1000"))

    assert outcome.error.name == "NONE"
    assert stored(ruled, path) == {"segment.bytes": "5000", "retention.ms": "1000"}


def test_a_lost_reply_is_no_second_write(ruled):
    ruled.write_topic("t", {0: [1]})
    ruled.candidates[0].session.lose_replies = 1

    (outcome,) = alter(ruled, sets(TOPIC, "t", retention_ms="1000"))

    assert outcome.error.name == "NONE"
    assert notifications(ruled) == ["topics/t"]
    assert ruled.ensemble.nodes[paths.topic_config("t")].version == 0


def test_a_topic_whose_settings_allow_it_is_led_by_whoever_lives(ruled):
    ruled.write_topic("t", {0: [1, 2]})
    ruled.kill_broker(2)
    ruled.kill_broker(1)
    ruled.start_broker(2)
    assert TopicPartition("t", 0) in ruled.candidates[0].term.context.leaderless

    alter(ruled, sets(TOPIC, "t", unclean_leader_election_enable="true"))
    ruled.clock.advance(10_000)
    ruled.settle()

    assert ruled.state("t")[0] == 2


def notify(world, entity: str) -> None:
    word = Create(paths.config_change_prefix(), znodes.encode_config_change(entity), sequential=True)
    world.ensemble.multi(0, [word])
    world.settle()


def test_notifications_are_removed_when_they_have_been_known_for_a_quarter_of_an_hour(ruled):
    notify(ruled, "topics/first")
    ruled.clock.advance(LASTS_MS - 1)
    ruled.settle()
    notify(ruled, "topics/second")
    assert notifications(ruled) == ["topics/first", "topics/second"]

    ruled.clock.advance(1)
    ruled.settle()
    assert notifications(ruled) == ["topics/second"]

    ruled.clock.advance(LASTS_MS)
    ruled.settle()
    assert notifications(ruled) == []


def test_a_new_controller_removes_the_notifications_it_found(world):
    word = Create(paths.config_change_prefix(), znodes.encode_config_change("topics/t"), sequential=True)
    world.ensemble.multi(0, [word])
    world.start_brokers(1)
    world.candidate(1)
    assert notifications(world) == ["topics/t"]

    world.clock.advance(LASTS_MS)
    world.settle()

    assert notifications(world) == []


def test_nothing_is_written_where_nothing_changes(ruled):
    ruled.write_topic("t", {0: [1]})
    before = dict(ruled.ensemble.nodes)

    (told,) = alter(ruled, ConfigAlteration(TOPIC, "t", (ConfigChange("retention.ms", Operation.DELETE, None),)))

    assert told.error.name == "NONE"
    assert ruled.ensemble.nodes == before
