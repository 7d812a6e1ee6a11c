"""Decision records: written in bounded files, read back whatever happened to them, merged across hosts."""

from __future__ import annotations

import pytest

from regency.history.files import HistoryWriter, read_file, read_history
from regency.history.records import Decision, decode_decision, encode_decisions, merge_decisions, numbered_twice


def decision(number: int, *, epoch: int = 1, time: int | None = None, source: int = 1, role: str = "controller"):
    at = number if time is None else time
    return Decision(epoch, number, "event", f"t-{number}", "leader 1", "leader 2", "because", at, source, role)


def test_record_is_one_line_of_json_with_readable_names():
    line = encode_decisions([decision(7)])

    assert line == (
        b'{"controller_epoch":1,"number":7,"event":"event","subject":"t-7","from":"leader 1","to":"leader 2",'
        b'"why":"because","time_ms":7,"source":1}\n'
    )
    assert decode_decision(line) == decision(7)


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"\xff\xfe", b'{"number":1}', b'{"controller_epoch":"x"}', b"null"])
def test_line_that_is_no_decision_is_none(line):
    assert decode_decision(line) is None


def test_decisions_come_back_in_order(tmp_path):
    writer = HistoryWriter(tmp_path / "history", "controller")
    writer.write([decision(1), decision(2)])
    writer.write([])
    writer.write([decision(3)])

    assert read_history([tmp_path / "history"]) == [decision(1), decision(2), decision(3)]
    assert writer.last_number() == 3


def test_files_are_bounded_and_the_oldest_is_dropped(tmp_path):
    size = len(encode_decisions([decision(10)]))
    writer = HistoryWriter(tmp_path, "controller", max_bytes=2 * size, max_files=3)
    for number in range(10, 20):
        writer.write([decision(number)])

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "controller.1.jsonl",
        "controller.2.jsonl",
        "controller.jsonl",
    ]
    assert [each.number for each in read_history([tmp_path])] == list(range(14, 20))
    assert all(path.stat().st_size <= 2 * size for path in tmp_path.iterdir())


def test_block_larger_than_a_file_is_kept_whole(tmp_path):
    writer = HistoryWriter(tmp_path, "controller", max_bytes=10)
    writer.write([decision(1), decision(2)])
    writer.write([decision(3)])

    assert [each.number for each in read_history([tmp_path])] == [1, 2, 3]


def test_torn_last_line_does_not_spoil_the_next_one(tmp_path):
    writer = HistoryWriter(tmp_path, "controller")
    writer.write([decision(1)])
    path = tmp_path / "controller.jsonl"
    path.write_bytes(path.read_bytes() + b'{"controller_ep')

    HistoryWriter(tmp_path, "controller").write([decision(2)])

    read = read_file(path)
    assert (read.decisions, read.skipped) == ((decision(1), decision(2)), 1)


def test_missing_files_and_folders_are_empty(tmp_path):
    assert read_history([tmp_path / "gone", tmp_path]) == []
    assert read_file(tmp_path / "gone.jsonl").decisions == ()
    assert HistoryWriter(tmp_path, "agent").last_number() == 0


def test_disk_that_refuses_is_counted_and_logged_once(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    writer = HistoryWriter(blocked, "controller")

    writer.write([decision(1), decision(2)])
    writer.write([decision(3)])

    assert writer.dropped == 3
    assert len(caplog.records) == 1
    blocked.unlink()
    writer.write([decision(4)])
    assert [each.number for each in read_history([blocked])] == [4]


def test_merge_is_by_epoch_then_time_and_keeps_every_deciders_own_order():
    controller = [decision(1, epoch=1, time=50), decision(2, epoch=1, time=40), decision(1, epoch=2, time=10)]
    agent = [
        decision(1, epoch=1, time=45, source=2, role="agent"),
        decision(2, epoch=1, time=60, source=2, role="agent"),
    ]

    merged = merge_decisions([controller, agent])

    told = [(each.controller_epoch, each.role, each.number) for each in merged]
    assert told == [(1, "agent", 1), (1, "controller", 1), (1, "controller", 2), (1, "agent", 2), (2, "controller", 1)]


def test_decision_found_twice_is_kept_once():
    assert merge_decisions([[decision(1)], [decision(1), decision(2)]]) == [decision(1), decision(2)]


def test_agent_and_controller_of_one_broker_number_apart():
    both = merge_decisions([[decision(1)], [decision(1, role="agent")]])

    assert len(both) == 2


def test_decisions_that_differ_are_kept_though_they_have_the_same_number():
    before = [decision(1, role="agent", time=10), decision(2, role="agent", time=20)]
    anew = [decision(1, role="agent", time=900)]

    merged = merge_decisions([anew, before, before])

    assert merged == [*before, *anew], "in the order of their times: numbers say nothing of it then"
    [told] = numbered_twice(merged)
    assert (told.role, told.source, told.times, told.controller_epoch, told.number) == ("agent", 1, 1, 1, 1)
    assert told.why.startswith("1 number stands for different decisions (number 1 in controller epoch 1 is the first)")


def test_a_number_in_every_epoch_and_of_every_process_is_no_doubt():
    merged = merge_decisions([[decision(1), decision(1, epoch=2), decision(1, role="agent"), decision(1, source=2)]])

    assert numbered_twice(merged) == []
