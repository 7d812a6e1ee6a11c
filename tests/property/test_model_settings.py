"""Settings hold for all content: files are read back as written, and nothing gives any error but SettingsInvalid."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from regency.model.settings import (
    LogConfig,
    SettingDescription,
    SettingsInvalid,
    describe_settings,
    parse_settings,
    topic_log_config,
)
from regency.model.settings.broker import KEYS
from regency.model.settings.keys import TOPIC_KEYS
from regency.model.settings.properties import format_properties, parse_properties
from regency.model.topic_names import InvalidTopicName, is_valid_topic_name, validate_topic_name

TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
VALUES = TEXTS | st.integers().map(str) | st.sampled_from(["true", "false", "-1", "", "A://h:1", "A:PLAINTEXT", "a,b"])
REQUIRED = {"broker.id": "1", "zookeeper.connect": "localhost:2181"}


@given(st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=6))
@settings(deadline=None)
def test_properties_are_read_back(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties), "f") == properties


@given(st.text(alphabet="a=: \t\f\\u00e9#!\n\r,", max_size=40) | st.text(max_size=40))
@settings(deadline=None)
def test_any_text_is_properties_or_invalid(text: str) -> None:
    try:
        parse_properties(text, "f")
    except SettingsInvalid as error:
        assert error.problems


@given(st.dictionaries(st.sampled_from(sorted(KEYS)) | TEXTS, VALUES, max_size=8))
@settings(deadline=None, max_examples=200)
def test_any_keys_and_values_are_settings_or_invalid(changes: dict[str, str]) -> None:
    try:
        parsed = parse_settings({**REQUIRED, **changes}, source="f")
    except SettingsInvalid as error:
        assert error.problems
    else:
        assert parsed.inter_broker_listener in parsed.listeners
        assert parsed.log_dirs
        assert parsed.log_config().min_insync_replicas >= 1


@given(st.dictionaries(st.sampled_from(sorted(TOPIC_KEYS)) | TEXTS, VALUES, max_size=6))
@settings(deadline=None)
def test_any_topic_keys_and_values_are_a_log_config_or_invalid(overrides: dict[str, str]) -> None:
    try:
        config = topic_log_config(LogConfig(), overrides)
    except SettingsInvalid as error:
        assert error.problems
    else:
        assert config.segment_bytes >= 14


@given(st.sampled_from([setting for setting in describe_settings() if setting.type in ("int", "long")]), st.integers())
@settings(deadline=None)
def test_a_number_is_accepted_as_it_stands_or_its_key_is_named(setting: SettingDescription, number: int) -> None:
    key = setting.key
    try:
        parsed = parse_settings({**REQUIRED, key: str(number)}, source="f")
    except SettingsInvalid as error:
        assert all(problem.startswith(f"{key}={str(number)[:200]}: ") for problem in error.problems)
    else:
        field = KEYS[key].field
        assert field is None or getattr(parsed, field) == number


@given(st.text(max_size=300))
@settings(deadline=None)
def test_any_name_is_allowed_or_refused_with_a_reason(name: str) -> None:
    try:
        validate_topic_name(name)
    except InvalidTopicName as error:
        assert not is_valid_topic_name(name)
        assert "is not allowed: " in error.message
    else:
        assert is_valid_topic_name(name)
