"""Kafka's text files, byte for byte."""

from __future__ import annotations

from uuid import UUID

import pytest

from regency.kafka.logfiles.checkpoints import (
    CheckpointMalformed,
    OffsetCheckpoint,
    format_epochs,
    format_partition_metadata,
    read_epochs,
    read_offsets,
    read_partition_metadata,
    replace_file,
)
from regency.kafka.logfiles.file_names import (
    DirectoryKind,
    aside_name,
    directory_kind,
    offset_file,
    parse_offset_file,
    parse_partition,
)
from regency.model.ids import TopicId, TopicPartition
from regency.runtime.disk import OsDisk

DISK = OsDisk()


def test_offsets_are_a_version_a_count_and_lines_in_order(tmp_path):
    checkpoint = OffsetCheckpoint(DISK, tmp_path / "replication-offset-checkpoint")
    checkpoint.write(
        {TopicPartition("b", 0): 7, TopicPartition("a", 10): 3, TopicPartition("a", 2): 0}, checkpoint.decide()
    )
    assert checkpoint.path.read_text() == "0\n3\na 2 0\na 10 3\nb 0 7\n"
    assert checkpoint.read() == {("a", 2): 0, ("a", 10): 3, ("b", 0): 7}
    assert [path.name for path in tmp_path.iterdir()] == ["replication-offset-checkpoint"]


def test_an_empty_checkpoint_is_two_lines_and_a_missing_one_is_empty(tmp_path):
    checkpoint = OffsetCheckpoint(DISK, tmp_path / "x")
    assert checkpoint.read() == {}
    checkpoint.write({}, checkpoint.decide())
    assert (checkpoint.path.read_text(), checkpoint.read()) == ("0\n0\n", {})


def test_an_older_content_never_replaces_a_newer_one(tmp_path):
    checkpoint = OffsetCheckpoint(DISK, tmp_path / "x")
    older, newer = checkpoint.decide(), checkpoint.decide()
    checkpoint.write({TopicPartition("a", 0): 2}, newer)
    checkpoint.write({TopicPartition("a", 0): 1}, older)
    assert checkpoint.read() == {("a", 0): 2}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1\n0\n",
        "0\n",
        "0\n2\na 0 1\n",
        "0\n1\na 0\n",
        "0\n1\na x 1\n",
        "0\nx\na 0 1\n",
        "0\n1\na 0 1\nb 0 1\n",
        "0\n1\na 0 1",
    ],
)
def test_a_malformed_checkpoint_is_named(tmp_path, text):
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text(text)
    with pytest.raises(CheckpointMalformed, match="recovery-point-offset-checkpoint"):
        read_offsets(DISK, path)


def test_epochs_are_written_as_kafka_does(tmp_path):
    path = tmp_path / "leader-epoch-checkpoint"
    content = format_epochs([(0, 0), (3, 120)])
    assert content == b"0\n2\n0 0\n3 120\n"
    path.write_bytes(content)
    assert read_epochs(DISK, path) == [(0, 0), (3, 120)]


@pytest.mark.parametrize(
    "content", [b"0\n2\n1 5\n1 6\n", b"0\n2\n1 5\n2 5\n", b"0\n1\n1 2 3\n", b"\xff\xfe", b"0\n1\na b\n", b"0\n1\n3 12"]
)
def test_epochs_that_do_not_rise_or_are_not_numbers_are_malformed(tmp_path, content):
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(content)
    with pytest.raises(CheckpointMalformed):
        read_epochs(DISK, path)


def test_the_topic_id_is_kept_as_kafka_keeps_it(tmp_path):
    topic_id = TopicId(UUID("00112233-4455-6677-8899-aabbccddeeff"))
    assert read_partition_metadata(DISK, tmp_path) is None
    (tmp_path / "partition.metadata").write_bytes(format_partition_metadata(topic_id))
    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w\n"
    assert read_partition_metadata(DISK, tmp_path) == topic_id


@pytest.mark.parametrize(
    "content", [b"", b"version: x\ntopic_id: ABEiM0RVZneImaq7zN3u_w", b"version: 0\ntopic_id: short", b"\xff"]
)
def test_partition_metadata_that_says_nothing_is_malformed(tmp_path, content):
    (tmp_path / "partition.metadata").write_bytes(content)
    with pytest.raises(CheckpointMalformed):
        read_partition_metadata(DISK, tmp_path)


def test_a_file_is_replaced_whole(tmp_path):
    replace_file(DISK, tmp_path / "f", b"old and long", sync=True)
    replace_file(DISK, tmp_path / "f", b"new", sync=False)
    assert ((tmp_path / "f").read_bytes(), [path.name for path in tmp_path.iterdir()]) == (b"new", ["f"])


def test_segment_files_have_twenty_digits(tmp_path):
    assert offset_file(tmp_path, 42, ".log").name == "00000000000000000042.log"
    assert parse_offset_file("00000000000000000042.snapshot") == (42, ".snapshot")
    for other in ("42.log", "00000000000000000042.log.deleted", "leader-epoch-checkpoint"):
        assert parse_offset_file(other) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("flights-3", DirectoryKind.PARTITION),
        ("a.b_c-d-0", DirectoryKind.PARTITION),
        ("flights-3.00112233445566778899aabbccddeeff-delete", DirectoryKind.DELETE),
        ("flights-3.00112233445566778899aabbccddeeff-stray", DirectoryKind.STRAY),
        ("flights-3.00112233445566778899aabbccddeeff-future", DirectoryKind.FUTURE),
        ("flights", DirectoryKind.FOREIGN),
        ("flights-", DirectoryKind.FOREIGN),
        ("-3", DirectoryKind.FOREIGN),
        ("flights-03", DirectoryKind.FOREIGN),
        ("lost+found", DirectoryKind.FOREIGN),
        ("fl ights-3", DirectoryKind.FOREIGN),
    ],
)
def test_directory_names_say_what_is_in_them(name, kind):
    assert directory_kind(name) is kind


def test_the_last_hyphen_separates_the_partition():
    assert parse_partition("a-b-12") == TopicPartition("a-b", 12)
    assert parse_partition("lost+found") is None


def test_the_name_of_a_deleted_directory_always_fits():
    unique = UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert aside_name(TopicPartition("t", 1), unique, DirectoryKind.DELETE) == f"t-1.{unique.hex}-delete"
    longest = aside_name(TopicPartition("x" * 249, 1), unique, DirectoryKind.DELETE)
    assert (len(longest), directory_kind(longest)) == (255, DirectoryKind.DELETE)
    assert longest.startswith("x" * 213 + "-1.")
