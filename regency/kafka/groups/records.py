"""Keys and values of the records of `__consumer_offsets`, all versions that Kafka 3.9 reads, written as it writes them.

Source: OffsetCommitKey and -Value, GroupMetadataKey and -Value of Kafka; KIP-848 for keys from version 3, KIP-915 for
values of version 4. Numbers are big endian, times milliseconds since 1970, lengths bytes.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

import msgspec

from regency.kafka.decoder import FrameMalformed, read_uvarint
from regency.model.errors import RegencyError
from regency.model.ids import LeaderEpoch, Offset, TopicPartition

_OFFSET_KEY_WRITTEN = 1
_GROUP_KEY = 2
_OFFSET_VALUE_WITH_EXPIRY = 1
_OFFSET_VALUE_WRITTEN = 3
_OFFSET_VALUES = range(5)
_GROUP_VALUE_WRITTEN = 3
_GROUP_VALUES = range(5)
_FLEXIBLE = 4

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_KEY_HEAD = struct.Struct(">hh")
"""Of an offset key: version, length of the group id."""
_OFFSET_HEAD = struct.Struct(">hqih")
"""Of an offset value of version 3: version, offset, leader epoch, length of the metadata."""

NO_TIME: Final = -1
"""State time of a group that was written without one."""

MAX_TEXT_BYTES: Final = 0x7FFF
"""Longest text in a record: its length has two bytes."""


class GroupRecordMalformed(RegencyError):
    """Key or value of a record that Kafka 3.9 cannot have written: the log is damaged, or somebody else wrote to it."""

    code = "group_record_malformed"

    def __init__(self, what: str, position: int, reason: str) -> None:
        super().__init__(f"{what}, byte {position}: {reason}")
        self.what = what
        self.position = position


class OffsetAndMetadata(msgspec.Struct, frozen=True, gc=False):
    """A committed offset. `expire_ms` (wall) is None but for commits of versions 2 to 4 with a retention."""

    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_ms: int
    expire_ms: int | None = None


class OffsetKey(NamedTuple):
    """The record is about an offset that a group has committed."""

    group_id: str
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        """What the offset is of."""
        return TopicPartition(self.topic, self.partition)


class GroupKey(NamedTuple):
    """The record is about a group and its members."""

    group_id: str


class OtherKey(NamedTuple):
    """A kind of record that the classic protocol does not have; to be skipped."""

    version: int


RecordKey: TypeAlias = OffsetKey | GroupKey | OtherKey


class MemberValue(NamedTuple):
    """A member as it is kept: `subscription` is its metadata for the protocol that was chosen."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A generation of a group as it is kept. An empty protocol type: a group that only commits."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    """When it came into its state, or NO_TIME."""
    members: tuple[MemberValue, ...]


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Key of a committed offset."""
    group, name = group_id.encode(), topic.encode()
    head = _KEY_HEAD.pack(_OFFSET_KEY_WRITTEN, len(group))
    return head + group + _SHORT.pack(len(name)) + name + _INT.pack(partition)


def group_key(group_id: str) -> bytes:
    """Key of a group."""
    return _SHORT.pack(_GROUP_KEY) + _text(group_id)


def offset_value(committed: OffsetAndMetadata) -> bytes:
    """Value of a committed offset; with an explicit expiry it has no place for the leader epoch."""
    metadata = committed.metadata.encode()
    if committed.expire_ms is None:
        head = _OFFSET_HEAD.pack(_OFFSET_VALUE_WRITTEN, committed.offset, committed.leader_epoch, len(metadata))
        return head + metadata + _LONG.pack(committed.commit_ms)
    head = struct.pack(">hqh", _OFFSET_VALUE_WITH_EXPIRY, committed.offset, len(metadata))
    return head + metadata + struct.pack(">qq", committed.commit_ms, committed.expire_ms)


def group_value(group: GroupValue) -> bytes:
    """Value of a group."""
    parts = [
        _SHORT.pack(_GROUP_VALUE_WRITTEN),
        _text(group.protocol_type),
        _INT.pack(group.generation),
        _text_or_null(group.protocol),
        _text_or_null(group.leader),
        _LONG.pack(group.state_ms),
        _INT.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            _text(member.member_id),
            _text_or_null(member.instance_id),
            _text(member.client_id),
            _text(member.client_host),
            _INT.pack(member.rebalance_timeout_ms),
            _INT.pack(member.session_timeout_ms),
            _INT.pack(len(member.subscription)),
            member.subscription,
            _INT.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def read_key(key: bytes) -> RecordKey:
    """What the record is about. Raises GroupRecordMalformed."""
    try:
        version, length = _KEY_HEAD.unpack_from(key)
        if version == _OFFSET_KEY_WRITTEN and length >= 0:
            topic_at = _KEY_HEAD.size + length + _SHORT.size
            partition_at = topic_at + _SHORT.unpack_from(key, topic_at - _SHORT.size)[0]
            if partition_at >= topic_at and partition_at + _INT.size == len(key):
                group_id, topic = key[_KEY_HEAD.size : topic_at - _SHORT.size], key[topic_at:partition_at]
                return OffsetKey(str(group_id, "utf-8"), str(topic, "utf-8"), _INT.unpack_from(key, partition_at)[0])
    except (struct.error, UnicodeDecodeError):
        pass
    return _read_key(key)


def _read_key(key: bytes) -> RecordKey:
    """The same, one field after the other: of any version, and knowing the place of what is wrong."""
    record = _Record("key", key)
    version = record.i16()
    if version == _GROUP_KEY:
        return GroupKey(record.text())
    if version in (0, _OFFSET_KEY_WRITTEN):
        return OffsetKey(record.text(), record.text(), record.i32())
    return OtherKey(version)


def read_offset_value(value: bytes) -> OffsetAndMetadata:
    """A committed offset. Raises GroupRecordMalformed, for versions that are not known too."""
    record = _Record("value of an offset", value)
    version = record.version(_OFFSET_VALUES)
    offset = Offset(record.i64())
    leader_epoch = LeaderEpoch(record.i32() if version >= _OFFSET_VALUE_WRITTEN else -1)
    metadata = record.text()
    commit_ms = record.i64()
    expire_ms = record.i64() if version == _OFFSET_VALUE_WITH_EXPIRY else -1
    return OffsetAndMetadata(offset, leader_epoch, metadata, commit_ms, None if expire_ms == -1 else expire_ms)


def stored_offset(value: bytes) -> bytes:
    """The same offset as `offset_value` writes it. Raises GroupRecordMalformed, for versions that are not known too.

    One that is so already and has no metadata is only looked at: a million of them are loaded at once.
    """
    try:
        version, _, _, length = _OFFSET_HEAD.unpack_from(value)
    except struct.error:
        version = length = -1
    if version == _OFFSET_VALUE_WRITTEN and length == 0 and len(value) == _OFFSET_HEAD.size + _LONG.size:
        return value
    return offset_value(read_offset_value(value))


def commit_time(stored: bytes) -> int:
    """When an offset was committed that `offset_value` wrote without an explicit expiry."""
    time: int = _LONG.unpack_from(stored, len(stored) - _LONG.size)[0]
    return time


def has_expiry(stored: bytes) -> bool:
    """Whether an offset that `offset_value` wrote has an explicit expiry."""
    return stored[1] == _OFFSET_VALUE_WITH_EXPIRY


def read_group_value(value: bytes) -> GroupValue:
    """A group. Raises GroupRecordMalformed, for versions that are not known too."""
    record = _Record("value of a group", value)
    version = record.version(_GROUP_VALUES)
    protocol_type, generation = record.text(), record.i32()
    protocol, leader = record.text_or_null(), record.text_or_null()
    state_ms = record.i64() if version >= 2 else NO_TIME
    members = tuple([_read_member(record, version) for _ in range(record.count())])
    for names in ([each.member_id for each in members], [each.instance_id for each in members if each.instance_id]):
        if len(set(names)) < len(names):
            raise record.malformed("a member is there twice")
    return GroupValue(protocol_type, generation, protocol, leader, state_ms, members)


def _read_member(record: _Record, version: int) -> MemberValue:
    member_id = record.text()
    instance_id = record.text_or_null() if version >= 3 else None
    client_id, client_host = record.text(), record.text()
    rebalance_timeout_ms = record.i32() if version >= 1 else None
    session_timeout_ms = record.i32()
    subscription, assignment = record.blob(), record.blob()
    record.skip_tags()
    return MemberValue(
        member_id,
        instance_id,
        client_id,
        client_host,
        session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _SHORT.pack(len(encoded)) + encoded


def _text_or_null(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else _text(text)


class _Record:
    """Key or value of a record, and how far it is read. Bytes after its end are left alone, as Kafka does."""

    def __init__(self, what: str, data: bytes) -> None:
        self._what = what
        self._data = data
        self._position = 0
        self._flexible = False

    def version(self, known: range) -> int:
        version = self.i16()
        if version not in known:
            raise self.malformed_at(0, f"version {version} is not known; expected {known[0]} to {known[-1]}")
        self._flexible = version >= _FLEXIBLE
        return version

    def i16(self) -> int:
        return self._number(_SHORT)

    def i32(self) -> int:
        return self._number(_INT)

    def i64(self) -> int:
        return self._number(_LONG)

    def text(self) -> str:
        start = self._position
        text = self.text_or_null()
        if text is None:
            raise self.malformed_at(start, "null where a text must be")
        return text

    def text_or_null(self) -> str | None:
        length = self._length(_SHORT)
        if length < 0:
            return None
        start = self._position
        try:
            return str(self._bytes(length), "utf-8")
        except UnicodeDecodeError as error:
            raise self.malformed_at(start + error.start, "not UTF-8") from None

    def blob(self) -> bytes:
        start = self._position
        length = self._length(_INT)
        if length < 0:
            raise self.malformed_at(start, "null where bytes must be")
        return self._bytes(length)

    def count(self) -> int:
        start = self._position
        count = self._length(_INT)
        if not 0 <= count <= len(self._data) - self._position:
            raise self.malformed_at(start, f"{count} members in {len(self._data) - self._position} bytes")
        return count

    def skip_tags(self) -> None:
        if self._flexible:
            for _ in range(self._varint()):
                self._varint()
                self._bytes(self._varint())

    def _length(self, fixed: struct.Struct) -> int:
        start = self._position
        length = self._varint() - 1 if self._flexible else self._number(fixed)
        if length < -1:
            raise self.malformed_at(start, f"length {length}")
        return length

    def _number(self, form: struct.Struct) -> int:
        try:
            number: int = form.unpack_from(self._data, self._position)[0]
        except struct.error:
            left = len(self._data) - self._position
            raise self.malformed_at(self._position, f"expected {form.size} bytes, {left} are left") from None
        self._position += form.size
        return number

    def _varint(self) -> int:
        try:
            number, self._position = read_uvarint(memoryview(self._data), self._position)
        except (FrameMalformed, IndexError):
            raise self.malformed_at(self._position, "expected a varint") from None
        return number

    def _bytes(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            left = len(self._data) - self._position
            raise self.malformed_at(self._position, f"expected {length} bytes, {left} are left")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def malformed(self, reason: str) -> GroupRecordMalformed:
        return self.malformed_at(self._position, reason)

    def malformed_at(self, position: int, reason: str) -> GroupRecordMalformed:
        return GroupRecordMalformed(self._what, position, reason)
