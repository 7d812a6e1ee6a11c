"""What settings are in force and where each value comes from, as Kafka's DescribeConfigs tells it (KIP-226). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import cache
from typing import Final

import msgspec

from regency.model.settings.broker import KEYS, BrokerSettings
from regency.model.settings.dynamic import DYNAMIC_KEYS
from regency.model.settings.keys import TEXT, TOPIC_KEY_OF, TOPIC_KEYS, Key
from regency.model.settings.log_config import LogConfig
from regency.model.settings.parse import describe_settings
from regency.model.settings.values import SECRETS, Kind, format_value


class Source(IntEnum):
    """Where a value stands. Numbers are those of the protocol."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


INTER_BROKER_PROTOCOL: Final = ("inter.broker.protocol.version", "3.9-IV0")
"""What tools read to know what a cluster can do: as of Kafka's last release with ZooKeeper. Nothing else reads it."""

_TYPES: Final = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}
_PASSWORD: Final = 9

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "log.dirs": ("log.dir",),
    "log.roll.ms": ("log.roll.hours",),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
    "zookeeper.connection.timeout.ms": ("zookeeper.session.timeout.ms",),
}
"""Keys that count, in this order, where a key itself is not in server.properties."""

_NOTHING_OF_ITS_OWN: Final = LogConfig()
_BROKER_KEY_OF: Final = {topic_key: key for key, topic_key in TOPIC_KEY_OF.items()}


class Synonym(msgspec.Struct, frozen=True):
    """A value that is in force, or would be if those before it were not there. None: it is not shown."""

    name: str
    value: str | None
    source: Source


class DescribedConfig(msgspec.Struct, frozen=True):
    """One key. `synonyms` begin with what is in force; `type` is a number of the protocol; `doc` may be empty."""

    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    type: int
    doc: str


class BrokerLayers(msgspec.Struct, frozen=True):
    """Settings of one broker: its file, and what /config/brokers holds for it and for all brokers."""

    settings: BrokerSettings
    own: Mapping[str, str] = {}
    everyone: Mapping[str, str] = {}


def describe_topic(overrides: Mapping[str, str], broker: BrokerLayers) -> list[DescribedConfig]:
    """Every topic key that has an effect, and those without one that the topic has all the same."""
    described = []
    for name, (kind, has_effect) in TOPIC_KEYS.items():
        if not has_effect and name not in overrides:
            continue
        chain: list[Synonym] = []
        if name in overrides and _is_one_of(kind, overrides[name]):
            chain.append(Synonym(name, overrides[name], Source.DYNAMIC_TOPIC_CONFIG))
        key = KEYS.get(_BROKER_KEY_OF.get(name, ""))
        inherited = None
        if key is None and has_effect:
            inherited = format_value(getattr(_NOTHING_OF_ITS_OWN, name.replace(".", "_")))
        if key is not None:
            chain += _chain(key, broker)
            inherited = _effective(key, chain, broker)
        described.append(_described(name, kind, chain, inherited, read_only=False, doc="" if key is None else key.doc))
    return described


def describe_broker(broker: BrokerLayers) -> list[DescribedConfig]:
    """Every key of server.properties that has an effect, and which release of Kafka this is like."""
    described = []
    for name, key in KEYS.items():
        chain = _chain(key, broker)
        value = _effective(key, chain, broker)
        described.append(_described(name, key.kind, chain, value, read_only=name not in DYNAMIC_KEYS, doc=key.doc))
    name, version = INTER_BROKER_PROTOCOL
    default = Synonym(name, version, Source.DEFAULT_CONFIG)
    doc = "Kafka's release whose protocol is spoken; it cannot be changed."
    described.append(_described(name, TEXT, [default], version, read_only=True, doc=doc))
    return described


def describe_all_brokers(everyone: Mapping[str, str]) -> list[DescribedConfig]:
    """What is set for all brokers at once, and nothing else."""
    return [
        _described(
            name,
            KEYS[name].kind,
            [Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER_CONFIG)],
            value,
            read_only=False,
            doc=KEYS[name].doc,
        )
        for name, value in everyone.items()
        if name in DYNAMIC_KEYS
    ]


def _chain(key: Key, broker: BrokerLayers) -> list[Synonym]:
    """Where a broker's key has values, in the order in which they count."""
    chain = []
    if key.name in DYNAMIC_KEYS:
        layers = ((broker.own, Source.DYNAMIC_BROKER_CONFIG), (broker.everyone, Source.DYNAMIC_DEFAULT_BROKER_CONFIG))
        for layer, source in layers:
            if key.name in layer and _is_one_of(key.kind, layer[key.name]):
                chain.append(Synonym(key.name, layer[key.name], source))
    given = dict(broker.settings.given)
    for name in (key.name, *SYNONYMS.get(key.name, ())):
        if name in given:
            chain.append(Synonym(name, given[name], Source.STATIC_BROKER_CONFIG))
    default = _defaults()[key.name]
    if default:
        chain.append(Synonym(key.name, default, Source.DEFAULT_CONFIG))
    return chain


def _effective(key: Key, chain: Iterable[Synonym], broker: BrokerLayers) -> str | None:
    """The value in force: as it stands where the key itself has one, else what the settings made of its synonyms."""
    first = next(iter(chain), None)
    if first is not None and (first.name == key.name or key.field is None):
        return first.value
    if key.field is None:
        return None
    return format_value(getattr(broker.settings, key.field)) or None


def _described(
    name: str, kind: Kind, chain: list[Synonym], value: str | None, *, read_only: bool, doc: str
) -> DescribedConfig:
    sensitive = name in SECRETS
    if chain and chain[0].name == name:
        value = chain[0].value
    if sensitive:
        value = None
        chain = [Synonym(each.name, None, each.source) for each in chain]
    return DescribedConfig(
        name,
        value,
        chain[0].source if chain else Source.DEFAULT_CONFIG,
        read_only,
        sensitive,
        tuple(chain),
        _PASSWORD if sensitive else _TYPES[kind.type_name],
        doc,
    )


def _is_one_of(kind: Kind, value: str) -> bool:
    """Whether a stored value can be used; an unreadable one has no effect."""
    try:
        kind.parse(value.strip())
    except ValueError:
        return False
    return True


@cache
def _defaults() -> Mapping[str, str]:
    return {setting.key: setting.default for setting in describe_settings()}
