"""Settings that are changed while brokers run: which they are, and what becomes of them when a change is asked for.

Pure. What a topic or a broker has of its own stands under /config and goes over server.properties (KIP-226, KIP-339).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import ClassVar, Final

import msgspec

from regency.model.errors import RegencyError
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.broker import KEYS
from regency.model.settings.foreign import is_ignored, refusal
from regency.model.settings.keys import TOPIC_KEY_OF, TOPIC_KEYS, WITHOUT_EFFECT
from regency.model.settings.log_config import NEVER, LogConfig, applicable_log_config
from regency.model.settings.values import Kind, ListOf, Problems, ReplicaList, format_value, nearest

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"

MOVES_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"

DYNAMIC_KEYS: Final = frozenset({*TOPIC_KEY_OF, LEADER_RATE, FOLLOWER_RATE, MOVES_RATE})
"""Every key that can be changed for running brokers."""

_SHOWN: Final = 200


class Operation(IntEnum):
    """What is done with a key. Numbers are those of IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(msgspec.Struct, frozen=True):
    """One change of one key; `value` is empty for DELETE."""

    key: str
    operation: Operation
    value: str = ""


class ThrottleRates(msgspec.Struct, frozen=True):
    """Bytes per second that a broker copies at most (KIP-73, KIP-113)."""

    leader: int = NEVER
    """Sent of throttled replicas that are not in sync."""
    follower: int = NEVER
    """Fetched for throttled replicas that are not in sync."""
    moves: int = NEVER
    """Copied between log directories of the broker."""


_RATES: Final[Mapping[str, str]] = {LEADER_RATE: "leader", FOLLOWER_RATE: "follower", MOVES_RATE: "moves"}
"""Fields of ThrottleRates by key."""


class ConfigRefused(RegencyError):
    """Settings cannot be changed as asked for; `error` is the code for a Kafka client."""

    code: ClassVar[str] = "config_refused"

    def __init__(self, error: ErrorCode, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.error = error


class _Rules(msgspec.Struct, frozen=True):
    """What may be set: a kind per key, what counts where nothing is set, and why any other key is refused."""

    kinds: Mapping[str, Kind]
    defaults: Mapping[str, str]
    refusal: Callable[[str], ConfigRefused]


def alter_topic_config(
    current: Mapping[str, str], changes: Sequence[ConfigChange], below: LogConfig, *, incremental: bool
) -> dict[str, str]:
    """What a topic has of its own after the changes. `below` is what it has where it has nothing of its own.

    Not `incremental`: the changes, all of them SET, replace what there is. What another tool has left there and no
    change names is kept as it is. Raises ConfigRefused.
    """
    rules = _Rules(
        {key: kind for key, (kind, _) in TOPIC_KEYS.items()},
        {key: _default(below, key) for key, (_, has_effect) in TOPIC_KEYS.items() if has_effect},
        _refuse_topic_key,
    )
    return _alter(current, changes, rules, incremental=incremental)


def alter_broker_config(
    current: Mapping[str, str], changes: Sequence[ConfigChange], below: LogConfig, *, incremental: bool
) -> dict[str, str]:
    """The same for one broker, or for all of them. Raises ConfigRefused."""
    rules = _Rules(
        {key: KEYS[key].kind for key in sorted(DYNAMIC_KEYS)},
        {key: _default(below, topic_key) for key, topic_key in TOPIC_KEY_OF.items()},
        _refuse_broker_key,
    )
    return _alter(current, changes, rules, incremental=incremental)


def broker_log_config(static: LogConfig, *layers: Mapping[str, str]) -> tuple[LogConfig, tuple[str, ...]]:
    """What topics have where they have nothing of their own: server.properties, and the brokers' layers over it.

    The later layer counts. Also what stands in them and cannot be used.
    """
    config = static
    problems: tuple[str, ...] = ()
    for layer in layers:
        named = {TOPIC_KEY_OF[key]: value for key, value in layer.items() if key in TOPIC_KEY_OF}
        config, found = applicable_log_config(config, named)
        problems = (*problems, *found)
    return config, problems


def broker_throttle_rates(static: ThrottleRates, *layers: Mapping[str, str]) -> tuple[ThrottleRates, tuple[str, ...]]:
    """Rates of server.properties, and the brokers' layers over them, the later before; and what cannot be used."""
    rates = {field: getattr(static, field) for field in _RATES.values()}
    problems: tuple[str, ...] = ()
    for layer in layers:
        found = Problems(layer, {})
        read = {field: found.read(key, KEYS[key].kind) for key, field in _RATES.items() if key in layer}
        rates.update((field, rate) for field, rate in read.items() if isinstance(rate, int))
        problems = (*problems, *found.found)
    return ThrottleRates(**rates), problems


def without_effect(config: Mapping[str, str]) -> list[str]:
    """What a topic's stored settings ask for in vain: each a sentence without its end."""
    vain = sorted(key for key in config if key in TOPIC_KEYS and not TOPIC_KEYS[key][1])
    said = [f"without effect here: {', '.join(vain)}"] if vain else []
    for key, (harmless, instead) in WITHOUT_EFFECT.items():
        if key in config and config[key].strip() != format_value(harmless):
            said.append(f"{key}: {instead}")
    return said


def _alter(
    current: Mapping[str, str], changes: Sequence[ConfigChange], rules: _Rules, *, incremental: bool
) -> dict[str, str]:
    for key, times in Counter(change.key for change in changes).items():
        if times > 1:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"{key} stands {times} times in the request.")
    altered = dict(current) if incremental else {}
    for change in changes:
        key = change.key
        if key not in rules.kinds and not (change.operation is Operation.DELETE and key in current):
            raise rules.refusal(key)
        if change.operation is Operation.DELETE:
            altered.pop(key, None)
        else:
            altered[key] = _value(change, altered.get(key, rules.defaults.get(key, "")), rules.kinds[key])
    return altered


def _value(change: ConfigChange, before: str, kind: Kind) -> str:
    """The value a key gets. Raises ConfigRefused where it is not one of `kind`."""
    value = change.value
    if change.operation in (Operation.APPEND, Operation.SUBTRACT):
        if not isinstance(kind, ListOf | ReplicaList):
            verb = change.operation.name.lower()
            raise ConfigRefused(
                ErrorCode.INVALID_CONFIG, f"{change.key} is no list: {verb} is not possible, only set and delete."
            )
        value = _combined(change.operation, before, value)
    try:
        kind.parse(value.strip())
    except ValueError as error:
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, f"{change.key}={value[:_SHOWN]}: {error}.") from error
    return value


def _combined(operation: Operation, before: str, value: str) -> str:
    """The list with elements added that are not in it, or taken out."""
    elements = dict.fromkeys(element.strip() for element in before.split(",") if element.strip())
    named = dict.fromkeys(element.strip() for element in value.split(","))
    if operation is Operation.APPEND:
        return ",".join(elements | named)
    return ",".join(element for element in elements if element not in named)


def _default(below: LogConfig, topic_key: str) -> str:
    return format_value(getattr(below, topic_key.replace(".", "_")))


def _refuse_topic_key(key: str) -> ConfigRefused:
    guess = nearest(key, list(TOPIC_KEYS))
    if key in TOPIC_KEY_OF:
        guess = f"; for topics it is {TOPIC_KEY_OF[key]}."
    return ConfigRefused(ErrorCode.INVALID_CONFIG, f"{key[:_SHOWN]}: there is no such topic key{guess or '.'}")


def _refuse_broker_key(key: str) -> ConfigRefused:
    if key in KEYS:
        return ConfigRefused(
            ErrorCode.INVALID_REQUEST,
            f"{key} cannot be changed while a broker runs.",
            hint="Set it in server.properties and restart the broker.",
        )
    if is_ignored(key) or refusal(key, "") is not None:
        return ConfigRefused(ErrorCode.INVALID_CONFIG, f"{key} has no effect in this system.")
    guess = nearest(key, sorted(DYNAMIC_KEYS))
    broker_key = next((each for each, topic_key in TOPIC_KEY_OF.items() if topic_key == key), "")
    if broker_key:
        guess = f"; for brokers it is {broker_key}."
    return ConfigRefused(ErrorCode.INVALID_CONFIG, f"{key[:_SHOWN]}: there is no such broker key{guess or '.'}")
