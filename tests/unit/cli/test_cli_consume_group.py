"""`regency consume --group`: what is committed, when, and what is said where it is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
import pytest
from click.testing import Result
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from fake_cluster import AT, FakeCluster, partition

from regency.cli.asking.wire import TopicFacts
from regency.cli.data import consume
from regency.cli.groups.facts import EARLIEST, LATEST, Listed

Run = Callable[..., Result]
Happening = Callable[["Member"], Any]


class Record:
    def __init__(self, number: int, offset: int, error: int | None = None, topic: str | None = "t") -> None:
        self._number, self._offset, self._error, self._topic = number, offset, error, topic

    def error(self) -> KafkaError | None:
        return None if self._error is None else KafkaError(self._error)

    def topic(self) -> str | None:
        return self._topic

    def partition(self) -> int:
        return self._number

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"%d:%d" % (self._number, self._offset)


def given(*partitions: int) -> Happening:
    """The group shares out: these are this member's."""

    def happen(member: Member) -> None:
        member.on_assign(member, [TopicPartition("t", number) for number in partitions])

    return happen


def taken(member: Member) -> None:
    """It is shared out again."""
    member.on_revoke(member, [])


def record(number: int, offset: int) -> Happening:
    return lambda _: Record(number, offset)


def end(number: int) -> Happening:
    return lambda _: Record(number, 0, KafkaError._PARTITION_EOF)


def fails(code: int) -> Happening:
    return lambda _: Record(-1, 0, code, topic=None)


def interrupted(_: Member) -> None:
    raise KeyboardInterrupt


class Member:
    """librdkafka's consumer as a member: things happen in the order of polls, then nothing."""

    def __init__(self, happenings: Sequence[Happening]) -> None:
        self._happenings = list(happenings)
        self.config: dict[str, Any] = {}
        self.held: dict[int, int] = {}
        """What the group has committed before."""
        self.stored: dict[int, int] = {}
        self.committed_offsets: dict[int, int] = {}
        self.commit_fails: int | None = None
        self.assigned: dict[int, int] = {}
        self.steps: list[str] = []

    def subscribe(self, topics: list[str], *, on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        assert topics == ["t"]
        self.on_assign, self.on_revoke, self.on_lost = on_assign, on_revoke, on_lost

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned = {each.partition: each.offset for each in places}

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition("t", each.partition, self.held.get(each.partition, -1001)) for each in places]

    def store_offsets(self, message: Record | None = None, offsets: Sequence[TopicPartition] = ()) -> None:
        if message is not None:
            self.stored[message.partition()] = message.offset() + 1
        self.stored.update({each.partition: each.offset for each in offsets})

    def commit(self, *, asynchronous: bool) -> None:
        assert not asynchronous
        self.steps.append("commit")
        if self.commit_fails is not None:
            raise KafkaException(KafkaError(self.commit_fails))
        if not self.stored:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET))
        self.committed_offsets |= self.stored

    def poll(self, _: float) -> Any:
        return self._happenings.pop(0)(self) if self._happenings else None

    def close(self) -> None:
        self.steps.append("close")


@pytest.fixture
def member(connect: Callable[[FakeCluster], None], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Member]:
    fake = FakeCluster()
    fake.known = [TopicFacts("t", [partition(0, 1, [1, 2]), partition(1, 2, [2, 3])])]
    connect(fake)

    def ends(_: object, names: Any, timestamp: int) -> Listed:
        return Listed({name: {EARLIEST: 3, LATEST: 90}[timestamp] for name in names if name.partition == 0}, {})

    def arrange(*happenings: Happening) -> Member:
        made = Member(happenings)

        def make(config: dict[str, Any]) -> Member:
            made.config = config
            return made

        monkeypatch.setattr(consume.confluent_kafka, "Consumer", make)
        return made

    monkeypatch.setattr(consume, "check_reachable", lambda *_: None)
    monkeypatch.setattr(consume, "offsets_at", ends)
    monkeypatch.setattr(consume, "why_none", lambda *_: None)
    return arrange


def test_what_is_printed_is_committed(run: Run, member: Callable[..., Member]) -> None:
    fake = member(given(0, 1), record(0, 7), record(1, 4), record(0, 8))
    fake.held = {0: 7, 1: 4}
    result = run("consume", "t", "--group", "g", "--max-messages", "2", *AT)
    assert (result.exit_code, result.stdout) == (0, "0:7\n1:4\n")
    assert (fake.committed_offsets, fake.steps) == ({0: 8, 1: 5}, ["commit", "close"])
    assert result.stderr == "Printed 2 records, and committed that in group g.\n"
    assert (fake.config["group.id"], fake.config["enable.auto.offset.store"]) == ("g", False)


def test_ctrl_c_commits_too(run: Run, member: Callable[..., Member]) -> None:
    fake = member(given(0), record(0, 7), interrupted)
    result = run("consume", "t", "--group", "g", *AT)
    assert (result.exit_code, fake.committed_offsets, fake.steps[-1]) == (130, {0: 8}, "close")


@pytest.mark.parametrize(("words", "start"), [(("--from-beginning",), 3), ((), 90)])
def test_a_partition_that_the_group_has_not_read_begins_once_and_for_all(
    run: Run, member: Callable[..., Member], words: tuple[str, ...], start: int
) -> None:
    fake = member(given(0, 1), interrupted)
    fake.held = {}
    run("consume", "t", "--group", "g", *words, *AT)
    assert fake.assigned == {0: start, 1: -1001}, "what no leader tells is librdkafka's to find"
    assert fake.committed_offsets == {0: start}
    assert fake.config["auto.offset.reset"] == ("earliest" if words else "latest")


def test_until_end_ends_with_the_partitions_of_this_member(run: Run, member: Callable[..., Member]) -> None:
    member(given(0, 1), end(1), record(0, 7), taken, given(1), end(0), record(1, 3), end(1), record(1, 4))
    result = run("consume", "t", "--group", "g", "--until-end", *AT)
    assert (result.exit_code, result.stdout) == (0, "0:7\n1:3\n")


def test_a_member_that_got_no_partition_is_at_the_end(run: Run, member: Callable[..., Member]) -> None:
    member(given())
    result = run("consume", "t", "--group", "g", "--until-end", *AT)
    assert (result.exit_code, result.stderr) == (0, "Printed 0 records, and committed that in group g.\n")


def test_a_commit_that_fails_is_no_good_end(run: Run, member: Callable[..., Member]) -> None:
    fake = member(given(0), record(0, 7))
    fake.commit_fails = KafkaError.ILLEGAL_GENERATION
    result = run("consume", "t", "--group", "g", "--max-messages", "1", *AT)
    assert (result.exit_code, result.stdout, fake.steps[-1]) == (1, "0:7\n", "close")
    assert "Of 1 record that were printed the last are not committed in group g" in result.stderr


def test_too_long_a_pause_is_over_with_the_next_poll(run: Run, member: Callable[..., Member]) -> None:
    member(given(0), record(0, 1), fails(KafkaError._MAX_POLL_EXCEEDED), given(0), record(0, 2))
    assert run("consume", "t", "--group", "g", "--max-messages", "2", *AT).stdout == "0:1\n0:2\n"


def test_what_ends_the_membership_ends_the_command(run: Run, member: Callable[..., Member]) -> None:
    fake = member(given(0), record(0, 1), fails(KafkaError.INCONSISTENT_GROUP_PROTOCOL))
    result = run("consume", "t", "--group", "g", *AT)
    assert (result.exit_code, "Reading ended:" in result.stderr, fake.committed_offsets) == (1, True, {0: 2})


def test_why_a_group_does_not_begin_is_said_once(
    run: Run, member: Callable[..., Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "IDLE_S", 0.05)
    monkeypatch.setattr(consume, "why_none", lambda *_: "it has no coordinator now")
    member()
    result = run("consume", "t", "--group", "g", "--timeout", "0.4", *AT)
    assert result.stderr.count("Note: group g waits: it has no coordinator now.") == 1


@pytest.mark.parametrize("words", [("--partition", "1"), ("1",), ("--offset", "5"), ("--offset", "-10")])
def test_a_group_decides_where_and_which(run: Run, member: Callable[..., Member], words: tuple[str, ...]) -> None:
    member()
    result = run("consume", "t", *words, "--group", "g", *AT)
    assert (result.exit_code, "--group says which partitions, and where" in result.stderr) == (2, True)


def test_a_group_reads_whole_topics(run: Run, member: Callable[..., Member]) -> None:
    member()
    result = run("consume", "t-1", "--group", "g", *AT)
    assert (result.exit_code, "There is no topic t-1." in result.stderr) == (1, True)


def test_without_a_group_nothing_is_committed(run: Run, member: Callable[..., Member]) -> None:
    fake = member(record(0, 7))
    result = run("consume", "t", "--from-beginning", "--max-messages", "1", *AT)
    assert (result.stdout, fake.stored, fake.steps, result.stderr) == ("0:7\n", {}, ["close"], "")
    assert fake.config["enable.auto.commit"] is False
    assert fake.assigned[0] == confluent_kafka.OFFSET_BEGINNING
