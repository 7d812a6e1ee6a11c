"""From the keys and values of a settings file to BrokerSettings. Import from `regency.model.settings`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from regency.model.settings.broker import KEYS, BrokerSettings
from regency.model.settings.foreign import is_ignored, refusal
from regency.model.settings.keys import TOPIC_KEY_OF, WITHOUT_EFFECT, Key
from regency.model.settings.listeners import read_listeners
from regency.model.settings.log_config import NEVER
from regency.model.settings.values import Problems, SettingsInvalid, format_value, nearest

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_CONNECT_STRING: Final = re.compile(r"[^\s,/]+(,[^\s,/]+)*(/[^\s,]*)?")
_WITHOUT_END: Final = (
    "log.flush.interval.messages",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.max.compaction.lag.ms",
)
"""Keys whose default is the greatest number there is, and is shown as that."""
_NOT_ABOVE: Final = (
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
)
"""Keys of which the first may not be greater than the second."""
_SHORTEST_WATCHDOG_MS: Final = 5_000
_NO_ORIGINS: Final[Mapping[str, str]] = {}


class SettingDescription(msgspec.Struct, frozen=True):
    """What there is to say about a key. `default` is text as in a file, empty where there is none."""

    key: str
    type: str
    default: str
    unit: str
    allowed: str
    doc: str
    required: bool = False


def describe_settings() -> tuple[SettingDescription, ...]:
    """Every key of server.properties that has an effect, in the order they are explained in."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(BrokerSettings)}
    return tuple(
        SettingDescription(
            key.name,
            key.kind.type_name,
            _default_text(key, defaults),
            key.unit,
            key.kind.allowed,
            key.doc,
            key.required,
        )
        for key in KEYS.values()
    )


def parse_settings(
    properties: Mapping[str, str], *, source: str, origins: Mapping[str, str] = _NO_ORIGINS
) -> BrokerSettings:
    """Settings from keys and values. `source` names the file; `origins` says where in it keys stand, such as `line 12`.

    Keys of Kafka that have no effect here are in `warnings`. Raises SettingsInvalid with all problems: keys that
    do not exist (and the nearest that does), values out of range, keys that contradict each other, keys that cannot be
    ignored safely.
    """
    problems = Problems(properties, origins)
    values: dict[str, object] = {}
    ignored: list[str] = []
    for name in properties:
        if name in KEYS:
            value = problems.read(name, KEYS[name].kind)
            if value is not None:
                values[name] = value
        elif (why := refusal(name, properties[name].strip())) is not None:
            problems.add(name, why)
        elif is_ignored(name):
            ignored.append(name)
        else:
            problems.add(name, _unknown(name))
    for key in KEYS.values():
        if key.required and key.name not in properties:
            problems.add_missing(key.name, key.doc)
    settings = _assemble(values, problems, _warnings(values, ignored))
    given = tuple((name, text.strip()) for name, text in sorted(properties.items()) if name in KEYS)
    settings = msgspec.structs.replace(settings, given=given)
    _check_together(settings, values, problems)
    if problems.found:
        raise SettingsInvalid(source, problems.found)
    return settings


def _unknown(name: str) -> str:
    guess = nearest(name, list(KEYS))
    if not guess and f"log.{name}" in KEYS:
        guess = f"; did you mean log.{name}?"
    return f"there is no such key{guess}"


def _assemble(values: Mapping[str, object], problems: Problems, warnings: tuple[str, ...]) -> BrokerSettings:
    """Settings from valid values; where values are missing or contradict each other, the defaults."""
    changes: dict[str, object] = {"warnings": warnings}
    for name, value in values.items():
        field = KEYS[name].field
        if field is not None:
            changes[field] = value
    changes.update(msgspec.structs.asdict(read_listeners(values, problems)))
    _derive(changes, values, "log_dirs", ("log.dir",))
    _derive(changes, values, "log_roll_ms", ("log.roll.hours",))
    _derive(changes, values, "log_roll_jitter_ms", ("log.roll.jitter.hours",))
    _derive(changes, values, "log_retention_ms", ("log.retention.minutes", "log.retention.hours"))
    _derive(changes, values, "log_flush_interval_ms", ("log.flush.scheduler.interval.ms",))
    _derive(changes, values, "zookeeper_connection_timeout_ms", ("zookeeper.session.timeout.ms",))
    changes.setdefault("regency_history_dir", "")
    return msgspec.structs.replace(BrokerSettings(), **changes)


def _derive(changes: dict[str, object], values: Mapping[str, object], field: str, keys: tuple[str, ...]) -> None:
    """Where the exact key says nothing, the first of the coarser `keys` that says something counts."""
    for key in keys:
        if field not in changes and key in values:
            changes[field] = _finer(key, values[key])


def _finer(key: str, value: object) -> object:
    if key == "log.dir":
        return (value,)
    factor = {"hours": _HOUR_MS, "minutes": _MINUTE_MS}.get(KEYS[key].unit, 1)
    return value * factor if isinstance(value, int) and value > 0 else value


def _check_together(settings: BrokerSettings, values: Mapping[str, object], problems: Problems) -> None:
    """Rules over several keys. They are reported at a key that stands in the file."""
    for key, other in _NOT_ABOVE:
        value, limit = (getattr(settings, name.replace(".", "_")) for name in (key, other))
        if value > limit:
            problems.add(key if key in values else other, f"expected {key} ({value}) to be at most {other} ({limit})")
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if values.get(name) == 0:
            problems.add(name, "expected 1 or more, or -1 for ever: nothing could be kept for no time")
    if 0 < settings.regency_loop_watchdog_ms < _SHORTEST_WATCHDOG_MS:
        why = f"expected 0, or {_SHORTEST_WATCHDOG_MS} or more: work of some seconds is not a loop that hangs"
        problems.add("regency.loop.watchdog.ms", why)
    if settings.regency_http_port == settings.regency_controller_http_port > 0:
        key = "regency.controller.http.port" if "regency.controller.http.port" in values else "regency.http.port"
        problems.add(key, "agent and controller need ports of their own, and both have this one")
    directories = [posixpath.normpath(directory) for directory in settings.log_dirs]
    if len(set(directories)) != len(directories):
        problems.add("log.dirs", "the same directory stands there twice")
    connect = settings.zookeeper_connect
    if connect and not _CONNECT_STRING.fullmatch(connect):
        problems.add("zookeeper.connect", "expected host:port,host:port and, if wanted, a /chroot behind the last")
    auth = settings.zookeeper_digest_auth
    if auth and (auth.startswith(":") or ":" not in auth):
        problems.add("regency.zookeeper.digest.auth", "expected user:password")
    if settings.zookeeper_set_acl and not auth:
        why = "needs an identity to give access to; set regency.zookeeper.digest.auth=user:password"
        problems.add("zookeeper.set.acl", why)


def _warnings(values: Mapping[str, object], ignored: list[str]) -> tuple[str, ...]:
    """What a user should know of settings that are valid."""
    warnings: list[str] = []
    if ignored:
        warnings.append(f"without effect here: {', '.join(sorted(ignored))}")
    for name, topic_key in TOPIC_KEY_OF.items():
        harmless, instead = WITHOUT_EFFECT.get(topic_key, (None, ""))
        if instead and values.get(name, harmless) != harmless:
            warnings.append(f"{name}: {instead}")
    return tuple(warnings)


def _default_text(key: Key, defaults: Mapping[str, object]) -> str:
    if key.default or key.required or key.field is None:
        return key.default
    value = defaults[key.field]
    if value == NEVER:
        return format_value(value) if key.name in _WITHOUT_END else ""
    return "" if value is None else format_value(value)
