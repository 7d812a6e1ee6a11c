"""`regency log dump`: Kafka's lines, and every kind of damage found and placed."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from crc32c import crc32c

from regency.broker_agent.log.producer_state import ProducerStates
from regency.cli.log.dump import command
from regency.cli.main import cli
from regency.kafka.record_batch import iter_batches, stamp

OFFSET_ENTRY, TIME_ENTRY = struct.Struct(">II"), struct.Struct(">qI")


def dump(*words: object) -> Result:
    return CliRunner().invoke(cli, ["log", "dump", *map(str, words)], prog_name="regency")


def facts(*words: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in dump("-o", "json", *words).stdout.splitlines()]


def damages(*words: object) -> list[dict[str, Any]]:
    """Every finding; the exit status says the same."""
    done = dump("-o", "json", *words)
    found = [fact for fact in map(json.loads, done.stdout.splitlines()) if fact["type"] == "damage"]
    assert done.exit_code == (1 if found else 0), done.stderr
    return found


def test_a_segment_stands_in_kafkas_lines(stored: Any) -> None:
    done = dump(stored.file(".log"))
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[:2] == [f"Dumping {stored.file('.log')}", "Starting offset: 0"]
    _, (at, second), *rest = iter_batches(stored.file(".log").read_bytes())
    assert lines[3] == (
        "baseOffset: 2 lastOffset: 3 count: 2 baseSequence: 2 lastSequence: 3 producerId: 7 producerEpoch: 0 "
        f"partitionLeaderEpoch: 0 isTransactional: false isControl: false position: {at} CreateTime: 1003 "
        f"size: {second.size} magic: 2 compresscodec: none crc: {second.crc} isvalid: true"
    )
    assert len(lines) == 2 + 2 + len(rest)
    assert done.stderr == "1 file, no damage found.\n"


def test_a_reader_that_goes_away_is_no_fault_of_the_file(stored: Any) -> None:
    command = [sys.executable, "-m", "regency", "log", "dump", "--print-data-log", *[str(stored.file(".log"))] * 200]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as dumping:
        assert dumping.stdout is not None
        assert dumping.stderr is not None
        dumping.stdout.read(1)
        dumping.stdout.close()
        assert (dumping.stderr.read(), dumping.wait()) == (b"", 0)


def test_records_are_shown_when_asked_for(stored: Any) -> None:
    deep = dump("--deep-iteration", "--max-bytes", "300", stored.file(".log")).stdout.splitlines()
    assert deep[3] == "| offset: 0 CreateTime: 1000 keySize: 1 valueSize: 7 sequence: 0 headerKeys: [trace]"
    full = dump("--print-data-log", "--max-bytes", "300", stored.file(".log")).stdout.splitlines()
    assert full[4].endswith("sequence: 1 headerKeys: [trace] key: k payload: value 1")
    kinds = [fact["type"] for fact in facts("--deep-iteration", "--max-bytes", "200", stored.file(".log"))]
    assert kinds == ["batch", "record", "record"]


def test_max_bytes_shows_whole_batches_only(stored: Any) -> None:
    size = facts(stored.file(".log"))[0]["size_bytes"]
    assert len(facts("--max-bytes", size, stored.file(".log"))) == 1
    assert len(facts("--max-bytes", 2 * size - 1, stored.file(".log"))) == 1
    assert facts("--max-bytes", 0, stored.file(".log")) == []


def test_everything_that_a_broker_leaves_is_sound(stored: Any) -> None:
    assert len(stored.bases) >= 3
    files = [path for path in (*stored.directory.iterdir(), *stored.root.iterdir()) if path.is_file()]
    named = [path for path in files if not path.name.startswith(".")]
    assert damages(*named) == []
    assert dump(stored.directory).exit_code == 0
    assert {fact["type"] for fact in facts(*named)} == {
        "batch",
        "empty",
        "offset_index_entry",
        "time_index_entry",
        "producer",
        "leader_epoch",
        "offset",
        "property",
    }


def test_index_entries_stand_in_kafkas_lines(stored: Any) -> None:
    lines = dump(stored.file(".index")).stdout.splitlines()
    relative, position = OFFSET_ENTRY.unpack_from(stored.file(".index").read_bytes())
    assert lines[1] == f"offset: {relative} position: {position}"
    lines = dump(stored.file(".timeindex")).stdout.splitlines()
    timestamp, relative = TIME_ENTRY.unpack_from(stored.file(".timeindex").read_bytes())
    assert lines[1] == f"timestamp: {timestamp} offset: {relative}"
    only = dump("--verify-index-only", stored.file(".index"), stored.file(".timeindex"))
    assert only.stdout.splitlines() == [f"Dumping {stored.file(name)}" for name in (".index", ".timeindex")]
    sane = dump("--index-sanity-check", stored.file(".index"), stored.file(".timeindex"))
    assert sane.stdout.splitlines()[1::2] == [
        f"{stored.file(name)} passed sanity check." for name in (".index", ".timeindex")
    ]


def test_small_files_are_told(stored: Any) -> None:
    epochs = dump(stored.directory / "leader-epoch-checkpoint").stdout.splitlines()
    assert epochs[1:] == ["epoch: 0 startOffset: 0", "epoch: 1 startOffset: 200", "epoch: 2 startOffset: 400"]
    marks = dump(stored.root / "replication-offset-checkpoint").stdout.splitlines()
    assert marks[1:] == ["topic: flights partition: 3 offset: 600"]
    meta = facts(stored.root / "meta.properties")
    assert {fact["key"]: fact["value"] for fact in meta}["broker.id"] == "1"
    assert facts(stored.directory / "partition.metadata")[0]["value"] == "ABEiM0RVZneImaq7zN3u_w"
    last = dump(stored.file(".snapshot", 600)).stdout.splitlines()[-1]
    assert last == (
        "producerId: 7 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: None "
        "firstSequence: 598 lastSequence: 599 lastOffset: 599 offsetDelta: 1 timestamp: 1599"
    )


@pytest.mark.parametrize("where", ["body", "crc"])
def test_a_flipped_byte_is_found_where_it_is_and_the_rest_is_read(stored: Any, where: str) -> None:
    log = stored.file(".log")
    before = facts(log)
    at = before[5]["position"]
    stored.flip(log, at + (17 if where == "crc" else before[5]["size_bytes"] - 3))
    after = dump("-o", "json", log)
    assert after.exit_code == 1
    found = [json.loads(line) for line in after.stdout.splitlines()]
    damage = [fact for fact in found if fact["type"] == "damage"]
    assert [(each["kind"], each["position"]) for each in damage] == [("checksum", at)]
    assert "offsets 10 to 11" in damage[0]["what"]
    batches = [fact for fact in found if fact["type"] == "batch"]
    assert [batch["valid"] for batch in batches] == [number != 5 for number in range(len(before))]
    assert f"Damage in {log}: byte {at}: the batch of offsets 10 to 11" in dump(log).stderr


def test_bytes_that_are_no_batch_end_the_reading_and_are_counted(stored: Any) -> None:
    log = stored.file(".log")
    at = facts(log)[5]["position"]
    stored.flip(log, at + 16)
    [damage] = damages(log)
    assert (damage["kind"], damage["position"]) == ("no_batch", at)
    assert f"{log.stat().st_size - at} bytes" in damage["what"]
    assert f"Found {log.stat().st_size - at} invalid bytes at the end of {log.name}" in dump(log).stdout


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_a_torn_batch_at_the_end_is_found(stored: Any, cut: int) -> None:
    log = stored.file(".log")
    last = facts(log)[-1]
    log.write_bytes(log.read_bytes()[: last["position"] + last["size_bytes"] - cut])
    [damage] = damages(log)
    assert (damage["kind"], damage["position"]) == ("torn", last["position"])


def test_offsets_and_epochs_must_rise(stored: Any) -> None:
    log = stored.file(".log")
    content = bytearray(log.read_bytes())
    places = [(at, header) for at, header in iter_batches(content)]
    stamp(content, places[4][1].base_offset - 2, 0, places[4][0])
    stamp(content, places[8][1].base_offset, 5, places[8][0])
    log.write_bytes(content)
    found = damages(log)
    assert [(each["kind"], each["position"]) for each in found] == [
        ("offset", places[4][0]),
        *[("leader_epoch", at) for at, _ in places[9:]],
    ]


def test_a_gap_is_told_and_is_no_damage(stored: Any) -> None:
    log = stored.file(".log")
    content = log.read_bytes()
    (_, _), (second, _), (third, _), *_ = iter_batches(content)
    log.write_bytes(content[:second] + content[third:])
    done = dump(log)
    assert done.exit_code == 0
    assert "Non-consecutive offsets in" in done.stderr
    assert "  1 is followed by 4" in done.stderr
    assert [fact for fact in facts(log) if fact["type"] == "gap"] == [
        {"type": "gap", "file": str(log), "last_offset": 1, "next_offset": 4}
    ]


def changed_index(path: Path, entry: struct.Struct, number: int, field: int, by: int) -> None:
    entries = list(entry.iter_unpack(path.read_bytes()))
    fields = list(entries[number])
    fields[field] += by
    entries[number] = tuple(fields)
    path.write_bytes(b"".join(entry.pack(*each) for each in entries))


@pytest.mark.parametrize(
    ("field", "by", "kind"),
    [(0, 1, "offset"), (0, -1, "offset"), (1, 1, "position"), (1, 1 << 30, "order"), (1, -(1 << 9), "position")],
)
def test_an_offset_index_entry_that_points_elsewhere_is_found_alone(
    stored: Any, field: int, by: int, kind: str
) -> None:
    index = stored.file(".index")
    changed_index(index, OFFSET_ENTRY, 2, field, by)
    [damage] = damages(index)
    assert (damage["kind"], damage["position"]) == (kind, 2 * OFFSET_ENTRY.size)


@pytest.mark.parametrize(("field", "by", "kind"), [(0, 1, "timestamp"), (1, 1, "offset"), (1, 1 << 20, "order")])
def test_a_time_index_entry_that_is_wrong_is_found_alone(stored: Any, field: int, by: int, kind: str) -> None:
    index = stored.file(".timeindex")
    changed_index(index, TIME_ENTRY, 2, field, by)
    [damage] = damages(index)
    assert (damage["kind"], damage["position"]) == (kind, 2 * TIME_ENTRY.size)


def test_the_last_entry_beyond_the_segment_is_found(stored: Any) -> None:
    index = stored.file(".index")
    changed_index(index, OFFSET_ENTRY, -1, 1, 1 << 30)
    [damage] = damages(index)
    assert damage["kind"] == "position"
    assert "ends at byte" in damage["what"]
    [damage] = damages("--index-sanity-check", index)
    assert damage["kind"] == "sanity"


def test_an_older_greater_timestamp_spoils_the_time_index(stored: Any, two_batches: Callable[..., bytes]) -> None:
    """An entry says that no record up to its offset has a greater timestamp."""
    log, index = stored.file(".log", 900), stored.file(".timeindex", 900)
    log.write_bytes(two_batches(900, 2_000, 0))
    index.write_bytes(TIME_ENTRY.pack(5_001, 1))
    assert damages(log, index) == []
    index.write_bytes(TIME_ENTRY.pack(1_001, 3))
    [damage] = damages(log, index)
    assert (damage["kind"], damage["what"]) == (
        "timestamp",
        "Index timestamp: 1001, but 5001 stands at or before offset 903",
    )


def test_an_index_may_leave_entries_out(stored: Any) -> None:
    index = stored.file(".timeindex")
    content = index.read_bytes()
    index.write_bytes(content[: 2 * TIME_ENTRY.size] + content[3 * TIME_ENTRY.size :])
    assert damages(index) == []


def test_several_batches_indexed_by_the_last_of_them_are_sound(stored: Any) -> None:
    """As Kafka's brokers wrote it before they indexed every batch."""
    batches = facts(stored.file(".log"))
    entries = [(batches[6]["last_offset"], batches[4]["position"]), (batches[9]["last_offset"], batches[9]["position"])]
    stored.file(".index").write_bytes(b"".join(OFFSET_ENTRY.pack(*each) for each in entries))
    assert damages(stored.file(".index")) == []


def test_zeros_that_fill_a_file_are_not_entries_but_entries_after_them_are_damage(stored: Any) -> None:
    index = stored.file(".index")
    content = index.read_bytes()
    index.write_bytes(content + b"\0" * 800)
    assert len(facts(index)) == len(content) // OFFSET_ENTRY.size
    index.write_bytes(content[:8] + b"\0" * 8 + content[8:])
    assert [damage["kind"] for damage in damages(index)] == ["empty_entry"]
    index.write_bytes(content[:-3])
    assert [damage["kind"] for damage in damages(index)] == ["size"]
    index.write_bytes(b"")
    assert facts(index) == [{"type": "empty", "file": str(index)}]


def test_an_index_without_its_segment_or_with_a_damaged_one_is_told(stored: Any) -> None:
    log = stored.file(".log")
    stored.flip(log, facts(log)[40]["position"] + 16)
    [damage] = damages(stored.file(".index"))
    assert damage["kind"] == "segment_damaged"
    log.unlink()
    assert [damage["kind"] for damage in damages(stored.file(".index"))] == ["no_segment"]
    assert [damage["kind"] for damage in damages(stored.file(".timeindex"))] == ["no_segment"]


def test_segments_that_are_to_be_deleted_are_read_too(stored: Any) -> None:
    for suffix in (".log", ".index"):
        stored.file(suffix).rename(stored.file(f"{suffix}.deleted"))
    assert dump(stored.file(".log.deleted"), stored.file(".index.deleted")).exit_code == 0


def replace(old: str, new: str) -> Callable[[bytes], bytes]:
    return lambda content: content.replace(old.encode(), new.encode())


@pytest.mark.parametrize(
    ("name", "change", "kind"),
    [
        ("flights-3/leader-epoch-checkpoint", replace("1 200", "1 500"), "order"),
        ("flights-3/leader-epoch-checkpoint", replace("1 200", "one 200"), "entry"),
        ("flights-3/leader-epoch-checkpoint", replace("0\n3\n", "0\n4\n"), "checkpoint"),
        ("flights-3/leader-epoch-checkpoint", lambda content: content[:-1], "checkpoint"),
        ("replication-offset-checkpoint", replace("flights 3 600", "flights 3 -6"), "entry"),
        ("replication-offset-checkpoint", replace("flights 3 600", "flights 600"), "entry"),
        ("replication-offset-checkpoint", replace("0\n1\n", "7\n1\n"), "checkpoint"),
        ("replication-offset-checkpoint", lambda _: b"0\n2\nt 1 5\nt 1 6\n", "repeated"),
        ("meta.properties", replace("broker.id=1", "broker.id=one"), "value"),
        ("meta.properties", replace("broker.id=1", ""), "missing_key"),
        ("meta.properties", replace("version=0", "version=9"), "version"),
        ("meta.properties", lambda _: b"\xff\xfe", "properties"),
        ("flights-3/partition.metadata", replace("ABEi", "AB"), "metadata"),
    ],
)
def test_damaged_small_files_are_found(stored: Any, name: str, change: Callable[[bytes], bytes], kind: str) -> None:
    path = stored.root / name
    content = change(path.read_bytes())
    assert content != path.read_bytes()
    path.write_bytes(content)
    assert kind in [damage["kind"] for damage in damages(path)]


def test_a_damaged_snapshot_is_found(stored: Any) -> None:
    stored.flip(stored.file(".snapshot", 600), 20)
    [damage] = damages(stored.file(".snapshot", 600))
    assert (damage["kind"], damage["what"]) == ("snapshot", "its checksum is wrong")


def test_an_open_transaction_of_a_kafka_broker_is_shown(stored: Any) -> None:
    entry = struct.pack(">qhiqiqiq", 9, 1, 4, 44, 4, 1234, 6, 40)
    path = stored.file(".snapshot", 45)
    path.write_bytes(ProducerStates().encode())
    assert facts(path) == [{"type": "empty", "file": str(path)}]
    rest = struct.pack(">i", 1) + entry
    path.write_bytes(struct.pack(">hI", 1, crc32c(rest)) + rest)
    assert dump(path).stdout.splitlines()[1] == (
        "producerId: 9 producerEpoch: 1 coordinatorEpoch: 6 currentTxnFirstOffset: Some(40) "
        "firstSequence: 0 lastSequence: 4 lastOffset: 44 offsetDelta: 4 timestamp: 1234"
    )


def test_aborted_transactions_are_shown(stored: Any) -> None:
    path = stored.file(".txnindex")
    entry = struct.Struct(">hqqqq")
    path.write_bytes(entry.pack(0, 9, 10, 20, 15) + entry.pack(0, 8, 12, 19, 21))
    done = dump(path)
    assert done.stdout.splitlines()[1] == "version: 0 producerId: 9 firstOffset: 10 lastOffset: 20 lastStableOffset: 15"
    [damage] = damages(path)
    assert (damage["kind"], damage["position"]) == ("order", 34)


def test_a_name_nobody_knows_is_an_error_and_the_others_are_dumped(stored: Any, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("hello")
    done = dump(other, stored.file(".index"))
    assert done.exit_code == 1
    assert f"Error: {other}: no file of this name is known. Known are segments (.log)" in done.stderr
    assert f"Dumping {stored.file('.index')}" in done.stdout
    assert done.stderr.endswith("\n2 files, 1 of them not read, no damage found.\n")
    assert "no damage" not in dump(other).stderr


def test_a_pipe_of_a_segments_name_is_not_waited_for(stored: Any, tmp_path: Path) -> None:
    pipe = tmp_path / f"{0:020d}.log"
    os.mkfifo(pipe)
    done = dump(pipe, stored.file(".index"))
    assert (done.exit_code, f"Error: {pipe}: it is no regular file." in done.stderr) == (1, True)
    assert f"Dumping {stored.file('.index')}" in done.stdout


def test_a_missing_file_is_wrong_use(stored: Any) -> None:
    done = dump(stored.file(".log", 5))
    assert done.exit_code == 2
    assert "does not exist" in done.stderr


def test_a_file_that_goes_while_it_is_read_is_an_error_of_its_own(stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention removes segments of a running broker at any time."""
    real = command._expanded

    def expanded(files: tuple[Path, ...]) -> Any:
        for path in real(files):
            if path.suffix == ".log" and path == stored.file(".log"):
                path.unlink()
            yield path

    monkeypatch.setattr(command, "_expanded", expanded)
    done = dump(stored.file(".log"), stored.root / "meta.properties")
    assert done.exit_code == 1
    assert "No such file" in done.stderr
    assert "broker.id: 1" in done.stdout


def test_compressed_records_are_shown_or_said_to_need_a_package(
    stored: Any, compressed: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored.file(".log", 900)
    path.write_bytes(compressed(3))
    done = dump("--print-data-log", path)
    assert (done.exit_code, done.stdout.splitlines()[3].rpartition(" payload: ")[2]) == (0, "value 0" * 100)
    monkeypatch.setattr("kafka.codec.has_lz4", lambda: False)
    done = dump("--print-data-log", path)
    assert done.exit_code == 0
    assert "compresscodec: lz4" in done.stdout
    assert "lz4 compression codec not found: install it to see these records" in done.stdout


def test_records_that_do_not_fit_their_batch_are_damage(stored: Any, compressed: Callable[[int], bytes]) -> None:
    path = stored.file(".log", 900)
    batch = bytearray(compressed(0))
    batch[57:61] = (3).to_bytes(4, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    path.write_bytes(batch)
    assert damages(path) == []
    [damage] = damages("--deep-iteration", path)
    assert (damage["kind"], damage["position"]) == ("record", 0)
    batch[35:43] = (9_999).to_bytes(8, "big")
    batch[57:61] = (2).to_bytes(4, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    path.write_bytes(batch)
    [damage] = damages("--deep-iteration", path)
    assert damage["kind"] == "timestamp"
