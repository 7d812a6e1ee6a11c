"""A reader's settings, spelled as Kafka's consumer spells them: what is read, what is taken and does nothing, what is
refused. Plain values, so that they travel to wherever the reading is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from regency.model.errors import RegencyError

BOOTSTRAP_SERVERS: Final = "bootstrap.servers"

WITHOUT_EFFECT: Final = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "client.rack",
        "config.providers",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "security.providers",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
    }
)
"""Settings of Kafka's consumer that change no record and no error here: there is no group, and no poll loop."""


class SettingRefused(RegencyError):
    """A setting has no such value, or would ask for what there is not. `name` is Kafka's name of it."""

    code = "setting_refused"

    def __init__(self, name: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{name}: {reason}.", hint=hint)
        self.name = name


class ClientSettings(msgspec.Struct, frozen=True):
    """What a reader goes by. Times are milliseconds, sizes bytes; each field names its setting where they differ."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    """Host and port of brokers to begin with; one that answers is enough."""
    client_id: str = "regency-reader"
    connect_timeout_ms: int = 10_000
    """socket.connection.setup.timeout.ms, for each address a host name has"""
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    """default.api.timeout.ms: a question with everything it takes, other leaders and waiting included"""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    fetch_max_bytes: int = 16 << 20
    partition_fetch_bytes: int = 8 << 20
    """max.partition.fetch.bytes: about as much is held three times, on the way, decoded and handed over"""
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    check_crcs: bool = True
    read_committed: bool = False
    """isolation.level"""

    @property
    def servers(self) -> str:
        """The bootstrap servers, for people."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.bootstrap_servers
        )


def client_settings(given: Mapping[str, str]) -> ClientSettings:
    """Settings from Kafka's names, without the prefix `kafka.`. Those of WITHOUT_EFFECT are taken and do nothing.

    Raises SettingRefused for a setting that is not read, a malformed value, TLS and SASL.
    """
    if BOOTSTRAP_SERVERS not in given:
        raise SettingRefused(BOOTSTRAP_SERVERS, "is missing", hint="Name brokers such as localhost:9092.")
    chosen: dict[str, object] = {"bootstrap_servers": bootstrap_servers(given[BOOTSTRAP_SERVERS])}
    for name, text in given.items():
        if name in _NUMBERS:
            field, lowest = _NUMBERS[name]
            chosen[field] = max(_number(name, text, lowest), _AT_LEAST.get(name, lowest))
        elif name in _WORDS:
            field, words = _WORDS[name]
            if text.lower() not in words:
                raise SettingRefused(name, f"{text!r} is none of {', '.join(words)}")
            chosen[field] = words[text.lower()]
        elif name == "client.id":
            chosen["client_id"] = text
        elif name == "security.protocol":
            if text.upper() != "PLAINTEXT":
                raise SettingRefused(name, f"{text!r} is not supported, only PLAINTEXT is (no TLS, no SASL)")
        elif name != BOOTSTRAP_SERVERS and not is_idle(name):
            raise SettingRefused(name, "is no setting that reading knows", hint="Remove it, or check its spelling.")
    return ClientSettings(**chosen)  # type: ignore[arg-type]


def is_idle(name: str) -> bool:
    """Whether a setting is taken and does nothing."""
    return name in WITHOUT_EFFECT or name.startswith("config.providers.")


def bootstrap_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Hosts and ports of `host:port,...`, without repetition. Raises SettingRefused."""
    found: dict[tuple[str, int], None] = {}
    for server in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = server.rpartition(":")
        host = host.rpartition("://")[2].strip("[]")
        if not (colon and host and port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
            raise SettingRefused(
                BOOTSTRAP_SERVERS, f"{server!r} is not HOST:PORT", hint="Name brokers such as localhost:9092."
            )
        found[host, int(port)] = None
    if not found:
        raise SettingRefused(BOOTSTRAP_SERVERS, "names no broker", hint="Name brokers such as localhost:9092.")
    return tuple(found)


_NUMBERS: Final = {
    "default.api.timeout.ms": ("api_timeout_ms", 1),
    "fetch.max.bytes": ("fetch_max_bytes", 0),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", 0),
    "fetch.min.bytes": ("fetch_min_bytes", 0),
    "max.partition.fetch.bytes": ("partition_fetch_bytes", 0),
    "request.timeout.ms": ("request_timeout_ms", 1),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", 0),
    "retry.backoff.ms": ("retry_backoff_ms", 0),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", 1),
}
"""Field and lowest value by name; the highest of all is that of an int32."""
_AT_LEAST: Final = dict.fromkeys(
    ("fetch.max.bytes", "max.partition.fetch.bytes", "retry.backoff.max.ms", "retry.backoff.ms"), 1
)
"""Where 0 stands for as little as there can be: one batch of records, or a pause that is none but lets others run."""
_WORDS: Final = {
    "check.crcs": ("check_crcs", {"true": True, "false": False}),
    "isolation.level": ("read_committed", {"read_uncommitted": False, "read_committed": True}),
}


def _number(name: str, text: str, lowest: int) -> int:
    digits = text.strip()
    value = int(digits) if digits.isascii() and digits.isdecimal() else -1
    if not lowest <= value < 2**31:
        raise SettingRefused(name, f"{text!r} is not a whole number from {lowest} to {2**31 - 1}")
    return value
