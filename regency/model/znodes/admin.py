"""Codecs of notifications, admin requests and settings. Import them from `regency.model.znodes`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

import msgspec

from regency.model.errors import ZnodeMalformed
from regency.model.ids import BrokerId, TopicPartition
from regency.model.topic_names import is_valid_topic_name
from regency.model.znodes import paths as znode_paths
from regency.model.znodes.json import Id, Natural, check_utf8, merge_fields, read_json

_LOG_DIR_FAILURE: Final = 1


class _PartitionJson(msgspec.Struct):
    topic: str
    partition: Natural


class _PartitionsJson(msgspec.Struct):
    partitions: list[_PartitionJson]


class _MoveJson(_PartitionJson):
    replicas: tuple[Id, ...]


class _MovesJson(msgspec.Struct):
    partitions: list[_MoveJson]


class _AskedMoveJson(msgspec.Struct):
    """As lenient as Kafka, which takes every number; its user says what is wrong with each."""

    topic: str
    partition: int
    replicas: tuple[int, ...]


class _AskedMovesJson(msgspec.Struct):
    partitions: list[_AskedMoveJson]


class _LogDirEventJson(msgspec.Struct):
    broker: Id
    event: Literal[1] = 1


class _ConfigJson(msgspec.Struct):
    config: dict[str, str]


class _ConfigChangeJson(msgspec.Struct):
    """Version 2 has entity_path, version 1 the other two."""

    version: Annotated[int, msgspec.Meta(ge=1, le=2)]
    entity_path: str | None = None
    entity_type: Literal["topics", "clients"] | None = None
    entity_name: str | None = None


_partitions_decoder = msgspec.json.Decoder(_PartitionsJson)
_moves_decoder = msgspec.json.Decoder(_MovesJson)
_asked_moves_decoder = msgspec.json.Decoder(_AskedMovesJson)
_log_dir_decoder = msgspec.json.Decoder(_LogDirEventJson)
_config_decoder = msgspec.json.Decoder(_ConfigJson)
_config_change_decoder = msgspec.json.Decoder(_ConfigChangeJson)


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    """Content of an ISR change notification: the partitions whose leaders wrote their ISR."""
    return _encode_partitions(partitions)


def decode_isr_change(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    """Read an ISR change notification. Raises ZnodeMalformed."""
    return _decode_partitions(path, data)


def encode_preferred_election(partitions: Iterable[TopicPartition]) -> bytes:
    """Content of /admin/preferred_replica_election."""
    return _encode_partitions(partitions)


def decode_preferred_election(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    """Read /admin/preferred_replica_election. Raises ZnodeMalformed."""
    return _decode_partitions(path, data)


def encode_asked_moves(moves: Iterable[tuple[TopicPartition, tuple[BrokerId, ...]]]) -> bytes:
    """Content of /admin/reassign_partitions, entry by entry, as `decode_asked_moves` reads it."""
    entries = [
        {"topic": partition.topic, "partition": partition.partition, "replicas": replicas}
        for partition, replicas in moves
    ]
    return msgspec.json.encode({"version": 1, "partitions": entries})


def decode_asked_moves(path: str, data: bytes) -> tuple[tuple[TopicPartition, tuple[BrokerId, ...]], ...]:
    """Read /admin/reassign_partitions entry by entry, whatever each says: partitions twice, replicas below 0.

    Raises ZnodeMalformed where it is not of the form at all.
    """
    moves = read_json(_asked_moves_decoder, path, data).partitions
    return tuple((TopicPartition(move.topic, move.partition), tuple(map(BrokerId, move.replicas))) for move in moves)


def encode_log_dir_event(broker: BrokerId) -> bytes:
    """Content of a log directory notification: a directory of `broker` failed."""
    return msgspec.json.encode({"version": 1, "broker": broker, "event": _LOG_DIR_FAILURE})


def decode_log_dir_event(path: str, data: bytes) -> BrokerId:
    """The broker a directory of which failed. Raises ZnodeMalformed."""
    return read_json(_log_dir_decoder, path, data).broker


def encode_config(config: Mapping[str, str], *, previous: bytes | None = None) -> bytes:
    """Content of /config/TYPE/NAME, keys in order; unknown fields of `previous` are kept.

    Raises ZnodeMalformed where `previous` is no JSON object.
    """
    fields = {"version": 1, "config": dict(sorted(config.items()))}
    return merge_fields(znode_paths.CONFIG, fields, previous)


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Read /config/TYPE/NAME; no data is no settings. Raises ZnodeMalformed."""
    if not data:
        return {}
    check_utf8(path, data)
    return read_json(_config_decoder, path, data).config


def encode_config_change(entity_path: str) -> bytes:
    """Content of a config change notification, version 2. `entity_path` is below /config, such as `topics/foo`."""
    return msgspec.json.encode({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> str:
    """The path below /config that changed, such as `topics/foo`, from version 1 or 2. Raises ZnodeMalformed."""
    content = read_json(_config_change_decoder, path, data)
    if content.version == 1:
        if content.entity_type is None or not content.entity_name:
            raise ZnodeMalformed(path, "version 1 needs entity_type and entity_name")
        return f"{content.entity_type}/{content.entity_name}"
    if not content.entity_path:
        raise ZnodeMalformed(path, "version 2 needs entity_path")
    kind, _, name = content.entity_path.partition("/")
    if not kind or not name:
        raise ZnodeMalformed(path, f"entity_path: expected TYPE/NAME, got {content.entity_path[:300]!r}")
    return content.entity_path


def _encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    named = [{"topic": partition.topic, "partition": partition.partition} for partition in partitions]
    return msgspec.json.encode({"version": 1, "partitions": named})


def _decode_partitions(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    content = read_json(_partitions_decoder, path, data)
    return tuple(_partition(path, position, named) for position, named in enumerate(content.partitions))


def _partition(path: str, position: int, named: _PartitionJson) -> TopicPartition:
    if not is_valid_topic_name(named.topic):
        raise ZnodeMalformed(path, f"partitions[{position}].topic: {named.topic[:300]!r} is no topic name")
    return TopicPartition(named.topic, named.partition)
