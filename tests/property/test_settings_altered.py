"""Whatever changes of settings are asked for: what is stored can be used, and what is refused changes nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.model.settings.broker import KEYS
from regency.model.settings.described import BrokerLayers, Source, describe_topic
from regency.model.settings.dynamic import (
    DYNAMIC_KEYS,
    ConfigChange,
    ConfigRefused,
    Operation,
    alter_broker_config,
    alter_topic_config,
    broker_log_config,
)
from regency.model.settings.keys import TOPIC_KEY_OF, TOPIC_KEYS
from regency.model.settings.log_config import LogConfig, applicable_log_config

TEXTS = st.text(max_size=12)
VALUES = (
    TEXTS | st.integers(-2, 2**40).map(str) | st.sampled_from(["true", "delete", "compact", "delete,compact", "gzip"])
)
KEYS_OF_ANY_KIND = st.sampled_from(sorted({*TOPIC_KEYS, *KEYS, *TOPIC_KEY_OF, "log.cleaner.threads"})) | TEXTS
CHANGES = st.lists(st.builds(ConfigChange, KEYS_OF_ANY_KIND, st.sampled_from(Operation), VALUES), max_size=5)
GOOD = st.dictionaries(st.sampled_from(["retention.ms", "segment.bytes"]), st.integers(14, 10**6).map(str))


@given(GOOD, CHANGES, st.booleans())
def test_what_a_topic_has_afterwards_can_be_used(
    current: dict[str, str], changes: list[ConfigChange], incremental: bool
) -> None:
    try:
        altered = alter_topic_config(current, changes, LogConfig(), incremental=incremental)
    except ConfigRefused as refused:
        assert refused.error in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
        assert str(refused)
        return
    config, problems = applicable_log_config(LogConfig(), altered)
    assert problems == ()
    named = {change.key for change in changes}
    if incremental:
        assert {key: value for key, value in altered.items() if key not in named} == {
            key: value for key, value in current.items() if key not in named
        }
    else:
        assert set(altered) <= named
    described = describe_topic(altered, BrokerLayers(BrokerSettings()))
    own = {each.name: each.value for each in described if each.source is Source.DYNAMIC_TOPIC_CONFIG}
    assert own == altered
    assert config.segment_bytes >= 14


@given(CHANGES)
def test_what_brokers_have_afterwards_is_what_logs_go_by(changes: list[ConfigChange]) -> None:
    try:
        altered = alter_broker_config({}, changes, LogConfig(), incremental=True)
    except ConfigRefused as refused:
        assert refused.error in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
        return
    assert set(altered) <= DYNAMIC_KEYS
    config, problems = broker_log_config(LogConfig(), altered)
    assert problems == ()
    assert (config == LogConfig()) or altered


@given(st.sampled_from(sorted(TOPIC_KEYS)), st.data())
def test_setting_and_deleting_a_key_leaves_what_was_before(key: str, data: st.DataObject) -> None:
    value = data.draw(VALUES)
    try:
        altered = alter_topic_config({}, [ConfigChange(key, Operation.SET, value)], LogConfig(), incremental=True)
    except ConfigRefused:
        return
    assert alter_topic_config(altered, [ConfigChange(key, Operation.DELETE)], LogConfig(), incremental=True) == {}
