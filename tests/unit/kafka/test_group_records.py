"""Records of __consumer_offsets byte by byte: what is written is Kafka's, and whatever Kafka 3.9 reads is read."""

from __future__ import annotations

import struct

import pytest

from regency.kafka.groups.placement import java_hash, partition_of
from regency.kafka.groups.records import (
    NO_TIME,
    GroupKey,
    GroupRecordMalformed,
    GroupValue,
    MemberValue,
    OffsetAndMetadata,
    OffsetKey,
    OtherKey,
    commit_time,
    group_key,
    group_value,
    has_expiry,
    offset_key,
    offset_value,
    read_group_value,
    read_key,
    read_offset_value,
    stored_offset,
)
from regency.kafka.groups.subscriptions import subscribed_topics, topics_of_all
from regency.model.ids import LeaderEpoch, Offset, TopicPartition

NOW = 1_700_000_000_000
NOW_HEX = "0000018bcfe56800"


def committed(offset: int, epoch: int = -1, metadata: str = "", *, expire_ms: int | None = None) -> OffsetAndMetadata:
    return OffsetAndMetadata(Offset(offset), LeaderEpoch(epoch), metadata, NOW, expire_ms)


MEMBER = MemberValue("m-1", "i", "c", "/1.2.3.4", 60_000, 10_000, b"\x00\x01", b"\xff")
GROUP = GroupValue("consumer", 7, "range", "m-1", NOW, (MEMBER,))
GROUP_HEX = (
    "0003 0008 636f6e73756d6572 00000007 0005 72616e6765 0003 6d2d31"
    f"{NOW_HEX} 00000001 0003 6d2d31 0001 69 0001 63 0008 2f312e322e332e34 0000ea60 00002710 00000002 0001 00000001 ff"
)


@pytest.mark.parametrize(
    ("name", "hashed", "partition"),
    [
        ("", 0, 0),
        ("test", 3556498, 48),
        ("my-group", -1906497762, 12),
        ("größe", 98762257, 7),
        ("group1", -1237460590, 40),
        ("spark-kafka-source-1", -1638101322, 22),
        ("polygenelubricants", -2147483648, 0),
        ("\U0001f600", 1772899, 49),
    ],
)
def test_a_group_is_kept_where_kafka_keeps_it(name: str, hashed: int, partition: int) -> None:
    assert (java_hash(name), partition_of(name, 50)) == (hashed, partition)


def test_keys_are_kafkas_byte_by_byte() -> None:
    assert offset_key("g", "t", 0) == bytes.fromhex("0001 0001 67 0001 74 00000000")
    assert group_key("g") == bytes.fromhex("0002 0001 67")
    assert offset_key("größe", "t", 258) == bytes.fromhex("0001 0007 6772c3b6c39f65 0001 74 00000102")


def test_values_are_kafkas_byte_by_byte() -> None:
    assert offset_value(committed(5)) == bytes.fromhex(f"0003 0000000000000005 ffffffff 0000 {NOW_HEX}")
    assert offset_value(committed(5, 3, "é")) == bytes.fromhex(f"0003 0000000000000005 00000003 0002 c3a9 {NOW_HEX}")
    expiring = committed(5, 3, "é", expire_ms=NOW + 1)
    assert offset_value(expiring) == bytes.fromhex(f"0001 0000000000000005 0002 c3a9 {NOW_HEX} 0000018bcfe56801")
    assert group_value(GROUP) == bytes.fromhex(GROUP_HEX)
    empty = GroupValue("consumer", 8, None, None, NOW, ())
    assert group_value(empty) == bytes.fromhex(f"0003 0008 636f6e73756d6572 00000008 ffff ffff {NOW_HEX} 00000000")


def test_both_versions_of_offset_keys_are_read_and_kinds_of_later_protocols_are_skipped() -> None:
    """KAFKA-14869: a record of an unknown kind must not end the loading."""
    offset = OffsetKey("g", "t", 3)
    assert offset.topic_partition == TopicPartition("t", 3)
    assert read_key(offset_key("g", "t", 3)) == offset
    assert read_key(b"\0\0" + offset_key("g", "t", 3)[2:]) == offset
    assert read_key(group_key("g")) == GroupKey("g")
    assert [read_key(struct.pack(">h", version) + b"whatever") for version in (3, 8, 99)] == [
        OtherKey(3),
        OtherKey(8),
        OtherKey(99),
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"0000 0000000000000005 0001 6d {NOW_HEX}", committed(5, metadata="m")),
        (f"0001 0000000000000005 0001 6d {NOW_HEX} 0000018bcfe56801", committed(5, metadata="m", expire_ms=NOW + 1)),
        (f"0001 0000000000000005 0001 6d {NOW_HEX} ffffffffffffffff", committed(5, metadata="m")),
        (f"0002 0000000000000005 0001 6d {NOW_HEX}", committed(5, metadata="m")),
        (f"0003 0000000000000005 00000002 0001 6d {NOW_HEX}", committed(5, 2, "m")),
        (f"0004 0000000000000005 00000002 02 6d {NOW_HEX} 00", committed(5, 2, "m")),
        (f"0004 0000000000000005 00000002 02 6d {NOW_HEX} 01 00 02 aabb", committed(5, 2, "m")),
    ],
)
def test_every_version_of_a_committed_offset_is_read(value: str, expected: OffsetAndMetadata) -> None:
    assert read_offset_value(bytes.fromhex(value)) == expected
    kept = stored_offset(bytes.fromhex(value))
    assert kept == offset_value(expected)
    assert has_expiry(kept) == (expected.expire_ms is not None)
    assert has_expiry(kept) or commit_time(kept) == NOW


def test_an_offset_in_the_form_that_is_written_is_kept_as_it_is() -> None:
    value = offset_value(committed(5, 3))
    assert stored_offset(value) is value


BEGIN = "0002 7372 00000007 ffff 0001 6d"
ENDS = "00002710 00000000 00000001 ff"
FLEXIBLE_ENDS = "00002710 01 02 ff 00 01 05 01 00"


@pytest.mark.parametrize(
    ("value", "rebalance_ms", "state_ms", "instance"),
    [
        (f"0000 {BEGIN} 00000001 0001 6d 0001 63 0001 68 {ENDS}", 10_000, NO_TIME, None),
        (f"0001 {BEGIN} 00000001 0001 6d 0001 63 0001 68 0000ea60 {ENDS}", 60_000, NO_TIME, None),
        (f"0002 {BEGIN} {NOW_HEX} 00000001 0001 6d 0001 63 0001 68 0000ea60 {ENDS}", 60_000, NOW, None),
        (f"0003 {BEGIN} {NOW_HEX} 00000001 0001 6d 0001 69 0001 63 0001 68 0000ea60 {ENDS}", 60_000, NOW, "i"),
        (
            f"0004 03 7372 00000007 00 02 6d {NOW_HEX} 02 02 6d 02 69 02 63 02 68 0000ea60 {FLEXIBLE_ENDS}",
            60_000,
            NOW,
            "i",
        ),
    ],
)
def test_every_version_of_a_group_is_read(value: str, rebalance_ms: int, state_ms: int, instance: str | None) -> None:
    member = MemberValue("m", instance, "c", "h", rebalance_ms, 10_000, b"", b"\xff")
    assert read_group_value(bytes.fromhex(value)) == GroupValue("sr", 7, None, "m", state_ms, (member,))


@pytest.mark.parametrize(
    ("read", "data", "words"),
    [
        (read_key, "00", "key, byte 0: expected 2 bytes, 1 are left"),
        (read_key, "0001 0005 67", "key, byte 4: expected 5 bytes, 1 are left"),
        (read_key, "0002 ffff", "key, byte 2: null where a text must be"),
        (read_key, "0002 fffe", "key, byte 2: length -2"),
        (read_key, "0002 0002 67ff", "key, byte 5: not UTF-8"),
        (read_key, "0001 0001 67 0001 74 0000", "key, byte 8: expected 4 bytes, 2 are left"),
        (read_offset_value, "0005", "value of an offset, byte 0: version 5 is not known; expected 0 to 4"),
        (stored_offset, "0003 0000000000000005 ffffffff 0000 00", "value of an offset, byte 16: expected 8 bytes, 1"),
        (stored_offset, "00", "value of an offset, byte 0: expected 2 bytes"),
        (read_offset_value, "0004 0000000000000005 00000002 ffffffffff7f", "byte 14: expected a varint"),
        (read_group_value, "0005", "value of a group, byte 0: version 5 is not known"),
        (
            read_group_value,
            "0003 0000 00000001 ffff ffff 0000000000000000 7fffffff",
            "byte 20: 2147483647 members in 0",
        ),
        (
            read_group_value,
            "0000 0000 00000001 ffff ffff 00000001 0000 0000 0000 00002710 ffffffff",
            "byte 26: null where bytes must be",
        ),
    ],
)
def test_a_malformed_record_is_refused_with_the_place(read: object, data: str, words: str) -> None:
    with pytest.raises(GroupRecordMalformed, match=words):
        read(bytes.fromhex(data))  # type: ignore[operator]


def test_no_prefix_of_a_record_is_read() -> None:
    for end in range(len(group_value(GROUP))):
        with pytest.raises(GroupRecordMalformed):
            read_group_value(group_value(GROUP)[:end])
    for end in range(len(offset_value(committed(5, 3, "m")))):
        with pytest.raises(GroupRecordMalformed):
            stored_offset(offset_value(committed(5, 3, "m"))[:end])


def test_topics_are_read_from_subscriptions_of_every_version() -> None:
    topics = "00000002 0001 61 0002 6262"
    assert subscribed_topics(bytes.fromhex(f"0000 {topics} ffffffff")) == ["a", "bb"]
    assert subscribed_topics(bytes.fromhex(f"0003 {topics} ffffffff 00000000 00000007 ffff")) == ["a", "bb"]
    assert subscribed_topics(bytes.fromhex(f"0063 {topics}")) == ["a", "bb"]
    assert subscribed_topics(bytes.fromhex("0000 00000000")) == []


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "0000",
        "ffff 00000000",
        "0000 ffffffff",
        "0000 7fffffff",
        "0000 00000001",
        "0000 00000001 0005 61",
        "0000 00000001 ffff",
        "0000 00000001 0001 ff",
    ],
)
def test_what_is_no_subscription_names_no_topics(metadata: str) -> None:
    assert subscribed_topics(bytes.fromhex(metadata)) is None


def test_a_member_that_cannot_be_understood_may_want_any_topic() -> None:
    one, other = bytes.fromhex("0000 00000001 0001 61"), bytes.fromhex("0000 00000002 0001 61 0001 62")
    assert topics_of_all([one, other]) == {"a", "b"}
    assert topics_of_all([]) == frozenset()
    assert topics_of_all([one, b"?"]) is None
