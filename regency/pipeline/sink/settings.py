"""Options `kafka.*` of a write: settings of the producer, in the names Kafka's Java producer gives them. Pure.

What Spark's sink forbids is forbidden here; what would undo a promise of the sink is refused with the reason; settings
that only a Java client could obey are refused or named in a warning, never dropped in silence. What Kafka takes is
taken: where the range of the client here is narrower the nearest value counts, and a warning says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from regency.clients.settings import BOOTSTRAP_SERVERS, ClientSettings, SettingRefused, client_settings
from regency.model.settings.values import nearest
from regency.pipeline.errors import PipelineOptionInvalid

INT: Final = (1 << 31) - 1
LONG: Final = (1 << 63) - 1
_MEBIBYTE: Final = 1 << 20


class Range(msgspec.Struct, frozen=True):
    """Kafka's from `lowest` to `highest`, the client's from `least` to `most`.

    `instead` has values that mean the same to the client as others to Kafka; nothing has to be said about them.
    """

    lowest: int
    highest: int
    least: int
    most: int
    instead: Mapping[int, int] = {}

    def parse(self, text: str) -> tuple[int, bool]:
        """The number for the client, and whether it is another one than was asked for. Raises ValueError."""
        digits = text.removeprefix("-")
        number = int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else None
        if number is None or not self.lowest <= number <= self.highest:
            raise ValueError(f"a whole number from {self.lowest} to {self.highest} is expected")
        if number in self.instead:
            return self.instead[number], False
        counts = min(max(number, self.least), self.most)
        return counts, counts != number


_BUFFER: Final = Range(-1, INT, 0, 100_000_000, {-1: 0})
"""-1: as the operating system has it."""
_PAUSE: Final = Range(0, LONG, 1, 300_000)

RANGES: Final = {
    "batch.size": Range(0, INT, 1, INT, {0: 1}),
    "buffer.memory": Range(0, LONG, _MEBIBYTE, 1024 * _MEBIBYTE),
    "compression.gzip.level": Range(-1, 9, -1, 9),
    "compression.lz4.level": Range(1, 17, 1, 12),
    "compression.zstd.level": Range(-131_072, 22, 1, 12, {0: -1}),
    "connections.max.idle.ms": Range(-1, LONG, 0, INT, {-1: 0}),
    "delivery.timeout.ms": Range(1, INT, 1, INT),
    "linger.ms": Range(0, LONG, 0, 900_000),
    "max.block.ms": Range(0, LONG, 1, 3_600_000),
    "max.in.flight.requests.per.connection": Range(1, INT, 1, 1_000_000),
    "max.request.size": Range(0, INT, 1_000, 1_000_000_000),
    "metadata.max.age.ms": Range(0, LONG, 1, 86_400_000),
    "receive.buffer.bytes": _BUFFER,
    "reconnect.backoff.max.ms": Range(0, LONG, 0, 3_600_000),
    "reconnect.backoff.ms": Range(0, LONG, 0, 3_600_000),
    "request.timeout.ms": Range(0, INT, 10, 300_000),
    "retries": Range(0, INT, 0, INT),
    "retry.backoff.max.ms": _PAUSE,
    "retry.backoff.ms": _PAUSE,
    "send.buffer.bytes": _BUFFER,
    "socket.connection.setup.timeout.ms": Range(0, LONG, 1_000, INT),
}
"""By Kafka's name."""


PREFIX: Final = "kafka."
MEBIBYTE: Final = 1 << 20
DEFAULT_BUFFER_BYTES: Final = 32 * MEBIBYTE
"""Of buffer.memory, as Kafka's: what waits to be delivered by one task."""
DEFAULT_MAX_BLOCK_MS: Final = 60_000
"""Of max.block.ms, as Kafka's."""
DEFAULT_LINGER_MS: Final = 5
DEFAULT_DELIVERY_MS: Final = 120_000
DEFAULT_REQUEST_MS: Final = 30_000
"""Of request.timeout.ms, as Kafka's."""
_DEFAULT_RECONNECT_MS: Final = 100
_DEFAULT_RECONNECT_MAX_MS: Final = 10_000

_COLUMNS: Final = "Columns key and value are text or bytes; encode them with functions of Spark, such as to_json."
FORBIDDEN: Final = {
    "key.serializer": ("keys are always written as the bytes they are", _COLUMNS),
    "value.serializer": ("values are always written as the bytes they are", _COLUMNS),
    "interceptor.classes": ("there is no Java client that could call interceptors", "Remove it."),
    "partitioner.class": (
        "there is no Java client that could call it",
        "Rows go where murmur2 of their key says, as Kafka's default; choose partitions with a column partition.",
    ),
    "partitioner.ignore.keys": ("keys choose the partition", "Choose partitions with a column partition."),
    "transactional.id": (
        "brokers offer no transactions",
        "Option effectivelyOnce keeps repeated tasks and batches from writing twice (docs/use/spark-write.md).",
    ),
    "sasl.jaas.config": ("SASL is not offered", "Remove it."),
}
"""Settings that no write may have, with why and what to do, by name without the prefix."""
_HARMLESS: Final = {"interceptor.classes": "", "partitioner.ignore.keys": "false"}
"""Values of them that ask for nothing, in lower case."""

_PRODUCER: Final = {
    "acks": "acks",
    "batch.size": "batch.size",
    "client.dns.lookup": "client.dns.lookup",
    "client.id": "client.id",
    "compression.type": "compression.type",
    "connections.max.idle.ms": "connections.max.idle.ms",
    "delivery.timeout.ms": "delivery.timeout.ms",
    "enable.idempotence": "enable.idempotence",
    "linger.ms": "linger.ms",
    "max.block.ms": "topic.metadata.propagation.max.ms",
    "max.in.flight.requests.per.connection": "max.in.flight.requests.per.connection",
    "max.request.size": "message.max.bytes",
    "metadata.max.age.ms": "metadata.max.age.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "request.timeout.ms": "request.timeout.ms",
    "retries": "retries",
    "retry.backoff.max.ms": "retry.backoff.max.ms",
    "retry.backoff.ms": "retry.backoff.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
}
"""librdkafka's name by Kafka's, of settings that are obeyed."""
WITHOUT_EFFECT: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "config.providers",
        "enable.metrics.push",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "security.providers",
        "socket.connection.setup.timeout.max.ms",
        "transaction.timeout.ms",
    }
)
"""Settings of Kafka's producer that change no record and no error here."""
_LEVELS: Final = {f"compression.{codec}.level": codec for codec in ("gzip", "lz4", "zstd")}
_OURS: Final = (BOOTSTRAP_SERVERS, "buffer.memory", "security.protocol", *_LEVELS)
_ALL: Final = ("all", "-1")
_ACKS: Final = (*_ALL, "0", "1")


class ProducerSettings(msgspec.Struct, frozen=True):
    """What a task's producer goes by. Travels with the task."""

    librdkafka: dict[str, Any]
    buffer_bytes: int
    max_block_ms: int
    """How long nothing may be learned of the cluster, and how long a topic may be unknown to it."""
    client: ClientSettings
    """For reading back what was written."""
    warnings: tuple[str, ...] = ()


def producer_settings(options: Mapping[str, str], *, once: bool) -> ProducerSettings:
    """Settings of the options `kafka.*` among `options`, whose names are in lower case.

    `once`: the write must be able to be effectively once. Raises PipelineOptionInvalid for what is missing, forbidden,
    unknown, malformed or contradictory.
    """
    given = {name.removeprefix(PREFIX): text.strip() for name, text in options.items() if name.startswith(PREFIX)}
    if BOOTSTRAP_SERVERS not in given:
        raise _refused(BOOTSTRAP_SERVERS, "it is missing", "Name brokers of the cluster, such as localhost:9092.")
    for name, text in given.items():
        _check_name(name, text)
    if given.get("security.protocol", "PLAINTEXT").upper() != "PLAINTEXT":
        raise _refused("security.protocol", "only PLAINTEXT is offered", "Remove it, or use a tunnel.")
    numbers, clamped = _numbers(given)
    conf = {_PRODUCER[name]: text for name, text in (given | numbers).items() if name in _PRODUCER}
    conf |= _acknowledged(given, once=once)
    conf["bootstrap.servers"] = given[BOOTSTRAP_SERVERS]
    conf.setdefault("client.id", "regency-sink")
    conf.setdefault("linger.ms", str(DEFAULT_LINGER_MS))
    conf.setdefault("batch.size", str(MEBIBYTE))
    conf.setdefault("message.max.bytes", str(MEBIBYTE))
    # request.timeout.ms of the client is how long a broker waits for replicas: the other is how long it is waited for
    conf["socket.timeout.ms"] = numbers.get("request.timeout.ms", str(DEFAULT_REQUEST_MS))
    least_ms = int(conf["linger.ms"]) + int(conf["socket.timeout.ms"])
    conf.setdefault("delivery.timeout.ms", str(max(DEFAULT_DELIVERY_MS, least_ms)))
    _check_delivery_time(int(conf["delivery.timeout.ms"]), int(conf["linger.ms"]))
    conf |= _reconnect_pauses(numbers)
    conf |= _compression_level(given, numbers)
    if once:  # where a batch begins is noted of topics that are there: one that is made later has no such place
        conf["allow.auto.create.topics"] = "false"
    block_ms = int(numbers.get("max.block.ms", DEFAULT_MAX_BLOCK_MS))
    conf["topic.metadata.propagation.max.ms"] = str(block_ms)
    return ProducerSettings(
        conf,
        int(numbers.get("buffer.memory", DEFAULT_BUFFER_BYTES)),
        block_ms,
        _client(given | numbers, conf["client.id"]),
        _warnings(given, clamped),
    )


def kafka_name(librdkafka: str) -> str:
    """Kafka's name of a setting, by librdkafka's."""
    return next((name for name, theirs in _PRODUCER.items() if theirs == librdkafka), librdkafka)


def _check_name(name: str, text: str) -> None:
    if name in FORBIDDEN and _HARMLESS.get(name) != text.lower():
        raise _refused(name, *FORBIDDEN[name])
    if name in _PRODUCER or _is_idle(name) or name in _OURS or name in FORBIDDEN:
        return
    if name.startswith(("sasl.", "ssl.")):
        raise _refused(name, "TLS and SASL are not offered", "Remove it, or use a tunnel.")
    known = [*_PRODUCER, *WITHOUT_EFFECT, *_OURS]
    raise _refused(name, f"the producer has no such setting{nearest(name, known)}", "See docs/use/spark-write.md.")


def _is_idle(name: str) -> bool:
    return name in WITHOUT_EFFECT or name.startswith("config.providers.")


def _numbers(given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Numbers as the client takes them, and in words which of them it cannot have as they were given."""
    numbers: dict[str, str] = {}
    clamped: list[str] = []
    for name, text in given.items():
        if name not in RANGES:
            continue
        try:
            number, other = RANGES[name].parse(text)
        except ValueError as error:
            raise _refused(
                name, f"{text[:200]!r} is no value it can have: {error}", "See docs/use/spark-write.md."
            ) from None
        numbers[name] = str(number)
        if other:
            clamped.append(f"{PREFIX}{name}={text} counts as {number}")
    return numbers, clamped


def _reconnect_pauses(numbers: Mapping[str, str]) -> dict[str, str]:
    """The first and the longest pause, each following the other where only one is given; the longest counts."""
    names = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
    first, longest = (None if name not in numbers else int(numbers[name]) for name in names)
    if longest is None:
        longest = max(first or 0, _DEFAULT_RECONNECT_MAX_MS)
    first = min(_DEFAULT_RECONNECT_MS if first is None else first, longest)
    return dict(zip(names, (str(first), str(longest)), strict=True))


def _compression_level(given: Mapping[str, str], numbers: Mapping[str, str]) -> dict[str, str]:
    """The level of the codec that is chosen: the client has one for all."""
    level = numbers.get(f"compression.{given.get('compression.type', '').lower()}.level")
    return {} if level is None else {"compression.level": level}


def _warnings(given: Mapping[str, str], clamped: list[str]) -> tuple[str, ...]:
    codec = given.get("compression.type", "none").lower()
    idle = sorted(name for name in given if _is_idle(name) or _LEVELS.get(name, codec) != codec)
    found = [f"Options without effect here: {', '.join(PREFIX + name for name in idle)}."] if idle else []
    if clamped:
        found.append(f"Options beyond what the client here can do: {', '.join(clamped)}.")
    return tuple(found)


def _acknowledged(given: Mapping[str, str], *, once: bool) -> dict[str, str]:
    """acks and idempotence, each following the other where only one is given, as in Kafka's producer."""
    acks, idempotence = given.get("acks"), given.get("enable.idempotence")
    if idempotence is not None and idempotence.lower() not in ("true", "false"):
        raise _refused("enable.idempotence", f"{idempotence!r} is neither true nor false", "Remove it: it is true.")
    if acks is not None and acks.lower() not in _ACKS:
        raise _refused("acks", f"{acks[:200]!r} is none of {', '.join(_ACKS)}", "Remove it: it is all.")
    weak_acks = acks is not None and acks.lower() not in _ALL
    if once and (weak_acks or (idempotence or "true").lower() == "false"):
        name = "acks" if weak_acks else "enable.idempotence"
        raise _refused(
            name, f"{given[name]!r} contradicts effectivelyOnce", "Remove it: acks are all and producers idempotent."
        )
    if weak_acks and idempotence is not None and idempotence.lower() == "true":
        raise _refused("acks", f"{acks!r} contradicts enable.idempotence", "Leave one of them out.")
    chosen = "false" if weak_acks else (idempotence or "true").lower()
    found = {"acks": acks.lower() if acks is not None else "all", "enable.idempotence": chosen}
    if chosen == "true":
        _check_in_flight(given, once=once)
        _check_retries(given, once=once)
    return found


def _check_in_flight(given: Mapping[str, str], *, once: bool) -> None:
    name = "max.in.flight.requests.per.connection"
    text = given.get(name, "5")
    if not 1 <= int(text) <= 5:
        without = "" if once else ", or set kafka.enable.idempotence to false and have records twice or out of order"
        raise _refused(
            name,
            f"{text!r} is not 1 to 5, as {'effectivelyOnce' if once else 'enable.idempotence, which is true,'} needs",
            f"Remove it: it is 5{without}.",
        )


def _check_retries(given: Mapping[str, str], *, once: bool) -> None:
    text = given.get("retries", "")
    if text.isascii() and text.isdecimal() and int(text) == 0:
        without = "" if once else ", or set kafka.enable.idempotence to false and lose records"
        raise _refused(
            "retries",
            f"{text!r} contradicts {'effectivelyOnce' if once else 'enable.idempotence, which is true'}: a request that"
            " is lost has to be sent again",
            f"Remove it{without}; how long is tried is kafka.delivery.timeout.ms.",
        )


def _check_delivery_time(delivery_ms: int, linger_ms: int) -> None:
    """A record waits for others of its batch before it is sent."""
    if delivery_ms <= linger_ms:
        raise _refused(
            "delivery.timeout.ms",
            f"'{delivery_ms}' is not more than kafka.linger.ms, which is {linger_ms}: a record would be given up before"
            " it is sent",
            "Remove it. Kafka asks for linger.ms and request.timeout.ms together at least.",
        )


def _client(given: Mapping[str, str], client_id: str) -> ClientSettings:
    shared = {name: given[name] for name in (BOOTSTRAP_SERVERS, "request.timeout.ms") if name in given}
    try:
        return client_settings({**shared, "client.id": client_id})
    except SettingRefused as error:
        reason = error.message.removeprefix(f"{error.name}: ").rstrip(".")
        raise _refused(error.name, reason, error.hint or "See docs/use/spark-write.md.") from None


def _refused(name: str, reason: str, hint: str) -> PipelineOptionInvalid:
    return PipelineOptionInvalid(PREFIX + name, reason, hint=hint)
