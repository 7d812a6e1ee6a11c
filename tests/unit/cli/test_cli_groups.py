"""`regency groups`: what coordinators are asked, what is shown of their answers, and what is refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from fake_cluster import AT, FakeCluster, partition

from regency.cli.asking.wire import TopicFacts
from regency.cli.completing import _group_names
from regency.cli.exits import CommandFailed
from regency.cli.groups import coordinators
from regency.kafka import codec
from regency.kafka.apis import ApiKey
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode

Run = Callable[..., Result]
DESCRIBED = codec.DescribeGroupsResponse.DescribedGroup
LISTED = codec.ListOffsetsResponse.ListOffsetsTopicResponse
FETCHED = codec.OffsetFetchResponse.OffsetFetchResponseGroup
DELETED = codec.OffsetDeleteResponse.OffsetDeleteResponseTopic
COMMITTED = codec.OffsetCommitResponse.OffsetCommitResponseTopic


def assignment(**topics: list[int]) -> bytes:
    """As Kafka's consumer protocol writes it."""
    told = struct.pack(">hi", 1, len(topics))
    for topic, numbers in topics.items():
        told += struct.pack(">h", len(topic)) + topic.encode()
        told += struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return told + struct.pack(">i", -1)


class Groups(FakeCluster):
    """Coordinators of groups: `etl` on broker 2, everything else on broker 1. Answers go over the wire's format."""

    def __init__(self) -> None:
        super().__init__()
        self.known = [
            TopicFacts("flights", [partition(number, 1 + number, [1, 2, 3]) for number in range(3)]),
            TopicFacts("__consumer_offsets", [partition(0, 1, [1]), partition(1, 2, [2])]),
        ]
        self.states = {"etl": "Empty", "old": "Empty"}
        self.types = {"connect": "connect"}
        self.members: dict[str, list[tuple[str, bytes]]] = {}
        """Client ids and assignments, by group."""
        self.offsets: dict[str, dict[tuple[str, int], int]] = {
            "etl": {("flights", 0): 10, ("flights", 1): 20},
            "old": {},
        }
        self.logs = {("flights", number): (5, 30 + number) for number in range(3)}
        self.since = 12
        """The offset of any moment."""
        self.errors: dict[ApiKey, list[int]] = {}
        """What the next requests of a kind answer in the place of what they should."""
        self.lost: list[ApiKey] = []
        """Requests whose next answer does not come."""
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def answer(self, message: Any, version: int, broker: int | None) -> Any:
        key = ApiKey(message.API_KEY)
        again = codec._decoder(type(message), version)(memoryview(codec.encode_body(version, message)), 0, 1000)[0]
        given = self.errors.get(key)
        told = getattr(self, "_" + key.name.lower())(again, version, broker, given.pop(0) if given else 0)
        if key in self.lost:
            self.lost.remove(key)
            raise CommandFailed("The exchange failed.")
        return codec.decode_body(key, version, codec.encode_body(version, told))

    def _find_coordinator(self, asked: Any, version: int, _: int | None, error: int) -> Any:
        rows = [
            codec.FindCoordinatorResponse.Coordinator(
                version=version,
                key=key,
                node_id=-1 if error else self.coordinator(key),
                host="h",
                port=1,
                error_code=error,
            )
            for key in asked.coordinator_keys
        ]
        return codec.FindCoordinatorResponse(version=version, coordinators=rows)

    @staticmethod
    def coordinator(group: str) -> int:
        return 2 if group == "etl" else 1

    def _list_groups(self, asked: Any, version: int, broker: int | None, error: int) -> Any:
        rows = [
            codec.ListGroupsResponse.ListedGroup(
                version=version, group_id=group, protocol_type=self.types.get(group, "consumer"), group_state=state
            )
            for group, state in self.states.items()
            if self.coordinator(group) == broker and (not asked.states_filter or state in asked.states_filter)
        ]
        return codec.ListGroupsResponse(version=version, error_code=error, groups=rows)

    def _describe_groups(self, asked: Any, version: int, broker: int | None, error: int) -> Any:
        assert {self.coordinator(group) for group in asked.groups} <= {broker}
        rows = []
        for group in asked.groups:
            members = [
                DESCRIBED.DescribedGroupMember(
                    version=version,
                    member_id=f"{client}-1",
                    group_instance_id=None,
                    client_id=client,
                    client_host="/10.0.0.1",
                    member_metadata=b"",
                    member_assignment=assigned,
                )
                for client, assigned in self.members.get(group, ())
            ]
            row = DESCRIBED(
                version=version,
                error_code=error,
                group_id=group,
                group_state=self.states.get(group, "Dead"),
                protocol_type=self.types.get(group, "consumer"),
                protocol_data="range" if members else "",
                members=members,
            )
            rows.append(row)
        return codec.DescribeGroupsResponse(version=version, groups=rows)

    def _offset_fetch(self, asked: Any, version: int, _: int | None, error: int) -> Any:
        groups = []
        for each in asked.groups:
            assert each.topics is None
            topics: dict[str, list[Any]] = {}
            topic_class = FETCHED.OffsetFetchResponseTopics
            for (topic, number), offset in self.offsets.get(each.group_id, {}).items():
                row = topic_class.OffsetFetchResponsePartitions(
                    version=version,
                    partition_index=number,
                    committed_offset=offset,
                    committed_leader_epoch=3,
                    metadata="m",
                    error_code=0,
                )
                topics.setdefault(topic, []).append(row)
            rows = [topic_class(version=version, name=topic, partitions=some) for topic, some in topics.items()]
            groups.append(FETCHED(version=version, group_id=each.group_id, topics=rows, error_code=error))
        return codec.OffsetFetchResponse(version=version, groups=groups)

    def _list_offsets(self, asked: Any, version: int, broker: int | None, error: int) -> Any:
        topics = []
        for topic in asked.topics:
            rows = []
            for each in topic.partitions:
                assert each.partition_index + 1 == broker, "only leaders are asked"
                start, end = self.logs[topic.name, each.partition_index]
                offset = {-1: end, -2: start}.get(each.timestamp, self.since)
                rows.append(
                    LISTED.ListOffsetsPartitionResponse(
                        version=version,
                        partition_index=each.partition_index,
                        error_code=error,
                        timestamp=-1,
                        offset=offset,
                        leader_epoch=0,
                    )
                )
            topics.append(LISTED(version=version, name=topic.name, partitions=rows))
        return codec.ListOffsetsResponse(version=version, topics=topics)

    def _offset_commit(self, asked: Any, version: int, broker: int | None, error: int) -> Any:
        assert (asked.generation_id_or_member_epoch, asked.member_id, broker) == (
            -1,
            "",
            self.coordinator(asked.group_id),
        )
        if not error:
            self.states.setdefault(asked.group_id, "Empty")
            for topic in asked.topics:
                for each in topic.partitions:
                    self.offsets.setdefault(asked.group_id, {})[topic.name, each.partition_index] = (
                        each.committed_offset
                    )
        topics = [
            COMMITTED(
                version=version,
                name=topic.name,
                partitions=[
                    COMMITTED.OffsetCommitResponsePartition(
                        version=version, partition_index=each.partition_index, error_code=error
                    )
                    for each in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
        return codec.OffsetCommitResponse(version=version, topics=topics)

    def _offset_delete(self, asked: Any, version: int, _: int | None, error: int) -> Any:
        topics = []
        for topic in asked.topics:
            rows = []
            for each in topic.partitions:
                subscribed = bool(self.members.get(asked.group_id))
                if not subscribed:
                    del self.offsets[asked.group_id][topic.name, each.partition_index]
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
                rows.append(
                    DELETED.OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=int(code))
                )
            topics.append(DELETED(name=topic.name, partitions=rows))
        return codec.OffsetDeleteResponse(error_code=error, topics=topics)

    def _delete_groups(self, asked: Any, version: int, _: int | None, error: int) -> Any:
        results = []
        for group in asked.groups_names:
            code = ErrorCode.NON_EMPTY_GROUP if self.members.get(group) else ErrorCode.NONE
            if group not in self.states:
                code = ErrorCode.GROUP_ID_NOT_FOUND
            elif code is ErrorCode.NONE:
                del self.states[group]
            row = codec.DeleteGroupsResponse.DeletableGroupResult(
                version=version, group_id=group, error_code=error or int(code)
            )
            results.append(row)
        return codec.DeleteGroupsResponse(version=version, results=results)

    def asked_of(self, key: ApiKey) -> list[int | None]:
        """Which brokers were asked that."""
        return [broker for message, broker in self.asked if key == message.API_KEY]


@pytest.fixture
def fake(connect: Callable[[FakeCluster], None], monkeypatch: pytest.MonkeyPatch) -> Groups:
    made = Groups()
    connect(made)
    monkeypatch.setattr(coordinators, "time", SimpleNamespace(monotonic=lambda: made.now, sleep=made.sleep))
    return made


def with_members(fake: Groups) -> None:
    fake.states["etl"] = "Stable"
    fake.members["etl"] = [("a", assignment(flights=[0, 2])), ("b", assignment(flights=[1]))]


def test_list_asks_every_broker_and_filters_by_state(run: Run, fake: Groups) -> None:
    with_members(fake)
    assert run("groups", "list", *AT).stdout.splitlines() == [
        "GROUP  STATE   PROTOCOL-TYPE  COORDINATOR",
        "etl    Stable  consumer       2",
        "old    Empty   consumer       1",
    ]
    assert fake.asked_of(ApiKey.LIST_GROUPS) == [1, 2, 3]
    told = json.loads(run("groups", "list", "--state", "EMPTY", *AT, "-o", "json").stdout)
    assert told == [{"group": "old", "state": "Empty", "protocol_type": "consumer", "coordinator": 1}]


def test_list_says_whose_groups_may_be_missing(run: Run, fake: Groups) -> None:
    fake.silent = [BrokerId(2)]
    fake.known[1].partitions[1].leader_id = -1
    result = run("groups", "list", *AT)
    assert (result.exit_code, result.stdout.count("\n")) == (3, 2)
    assert "Broker 2 does not answer; the groups that it coordinates are missing." in result.stderr
    assert "1 partition without a leader are missing: __consumer_offsets-1" in result.stderr


def test_list_waits_for_a_coordinator_that_still_loads(run: Run, fake: Groups) -> None:
    fake.errors[ApiKey.LIST_GROUPS] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    assert (run("groups", "list", *AT).exit_code, fake.now) == (0, pytest.approx(2 * coordinators.LOOK_EVERY_S))
    fake.errors[ApiKey.LIST_GROUPS] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 500
    result = run("groups", "list", *AT)
    assert (result.exit_code, "may be missing: still reads the offsets" in result.stderr) == (3, True)


def test_describe_shows_offsets_lag_and_who_reads(run: Run, fake: Groups) -> None:
    with_members(fake)
    lines = run("groups", "describe", "etl", *AT).stdout.splitlines()
    assert [line.split()[1:] for line in lines[1:4]] == [
        ["flights", "0", "10", "30", "20", "a-1", "10.0.0.1", "a"],
        ["flights", "1", "20", "31", "11", "b-1", "10.0.0.1", "b"],
        ["flights", "2", "-", "32", "-", "a-1", "10.0.0.1", "a"],
    ]
    assert lines[4:] == ["Group etl is 31 records behind."]
    [told] = json.loads(run("groups", "describe", "etl", *AT, "-o", "json").stdout)
    assert (told["lag"], told["coordinator"], told["assignor"]) == (31, 2, "range")
    assert told["members"][0]["partitions"] == [
        {"topic": "flights", "partition": 0},
        {"topic": "flights", "partition": 2},
    ]


def test_describe_shows_members_with_what_they_read(run: Run, fake: Groups) -> None:
    with_members(fake)
    lines = run("groups", "describe", "etl", "--members", "--verbose", *AT).stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["etl", "a-1", "-", "10.0.0.1", "a", "2", "flights(0,2)"],
        ["etl", "b-1", "-", "10.0.0.1", "b", "1", "flights(1)"],
    ]
    assert not fake.asked_of(ApiKey.OFFSET_FETCH)


def test_describe_of_all_asks_coordinators_for_several_at_once(run: Run, fake: Groups) -> None:
    fake.states["new"] = "PreparingRebalance"
    result = run("groups", "describe", "--state", *AT)
    assert [line.split() for line in result.stdout.splitlines()[1:4]] == [
        ["etl", "2", "-", "Empty", "0"],
        ["new", "1", "-", "PreparingRebalance", "0"],
        ["old", "1", "-", "Empty", "0"],
    ]
    assert "Group new is rebalancing (PreparingRebalance)" in result.stdout
    assert sorted(fake.asked_of(ApiKey.DESCRIBE_GROUPS)) == [1, 2]


def test_a_group_of_another_protocol_has_no_partitions(run: Run, fake: Groups) -> None:
    fake.states["connect"] = "Stable"
    fake.members["connect"] = [("worker", b"\x00\x01garbage")]
    [told] = json.loads(run("groups", "describe", "connect", *AT, "-o", "json").stdout)
    assert (told["members"][0]["partitions"], told["offsets"], told["lag"]) == (None, [], None)


@pytest.mark.parametrize("garbage", [b"\x00\x01\x00\x00\x00\x02", b"\x00\x01\x00\x00\x00\x01\x00\x02\xff\xff\0\0\0\0"])
def test_an_assignment_that_is_none_is_shown_as_unknown(run: Run, fake: Groups, garbage: bytes) -> None:
    fake.states["etl"] = "Stable"
    fake.members["etl"] = [("a", garbage)]
    [told] = json.loads(run("groups", "describe", "etl", *AT, "-o", "json").stdout)
    assert told["members"][0]["partitions"] is None


def test_describe_tells_what_is_not_known_of_logs(run: Run, fake: Groups) -> None:
    fake.offsets["etl"]["gone", 0] = 3
    fake.silent = [BrokerId(2)]
    result = run("groups", "describe", "etl", *AT)
    assert result.exit_code == 3
    assert [line.split()[4:6] for line in result.stdout.splitlines()[1:4]] == [["30", "20"], ["-", "-"], ["-", "-"]]
    assert "broker 2, which leads flights-1, does not answer" in result.stderr
    assert "there is no partition gone-0" in result.stderr


def test_a_group_that_is_not_there_is_answered_with_the_nearest(run: Run, fake: Groups) -> None:
    result = run("groups", "describe", "elt", "old", *AT)
    assert (result.exit_code, result.stderr) == (1, "Error: There is no group elt. Did you mean etl?\n")
    assert "Group old has committed no offsets." in result.stdout
    for words in (("offsets", "elt"), ("delete", "elt", "--yes"), ("reset-offsets", "elt", "--to-latest")):
        told = run("groups", *words, *AT)
        assert (told.exit_code, "Did you mean etl?" in told.stderr) == (1, True), words


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_group_that_moves_is_asked_for_again(run: Run, fake: Groups, error: ErrorCode) -> None:
    fake.errors[ApiKey.DESCRIBE_GROUPS] = [error] * 3
    assert run("groups", "describe", "etl", *AT).exit_code == 0
    assert len(fake.asked_of(ApiKey.FIND_COORDINATOR)) == 5  # four for the description, one for the offsets


def test_a_group_without_a_coordinator_is_given_up_with_the_reason(run: Run, fake: Groups) -> None:
    fake.errors[ApiKey.FIND_COORDINATOR] = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 500
    fake.known[1].partitions[1].leader_id = -1
    result = run("groups", "describe", "etl", *AT)
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == (
        "Error: Group etl cannot be asked for: it has no coordinator now for 20 s. "
        "__consumer_offsets lacks leaders: __consumer_offsets-1.\n"
    )
    del fake.known[1]
    assert "There is no topic __consumer_offsets" in run("groups", "describe", "etl", *AT).stderr


def test_a_reset_shows_first_and_changes_nothing(run: Run, fake: Groups) -> None:
    result = run("groups", "reset-offsets", "etl", "--to-earliest", *AT)
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "TOPIC    PARTITION  CURRENT-OFFSET  NEW-OFFSET",
            "flights  0          10              5",
            "flights  1          20              5",
            "Nothing was changed. --execute resets 2 partitions of group etl.",
        ],
    )
    assert fake.offsets["etl"] == {("flights", 0): 10, ("flights", 1): 20}
    assert not fake.asked_of(ApiKey.OFFSET_COMMIT)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--to-earliest",), {0: 5, 1: 5}),
        (("--to-latest",), {0: 30, 1: 31}),
        (("--to-current",), {0: 10, 1: 20}),
        (("--to-offset", "7"), {0: 7, 1: 7}),
        (("--to-offset", "1"), {0: 5, 1: 5}),
        (("--shift-by", "-3"), {0: 7, 1: 17}),
        (("--shift-by", "100"), {0: 30, 1: 31}),
        (("--to-datetime", "2026-05-04T14:30"), {0: 12, 1: 12}),
        (("--by-duration", "2h"), {0: 12, 1: 12}),
        (("--topic", "flights", "--to-current"), {0: 10, 1: 20, 2: 32}),
        (("--topic", "flights:0,2", "--to-latest"), {0: 30, 1: 20, 2: 32}),
        (("--topic", "flights-2", "--topic", "flights:0", "--to-earliest"), {0: 5, 1: 20, 2: 5}),
    ],
)
def test_a_reset_goes_where_it_is_told(run: Run, fake: Groups, words: tuple[str, ...], found: dict[int, int]) -> None:
    result = run("groups", "reset-offsets", "etl", *words, "--execute", *AT)
    assert result.exit_code == 0, result.output
    assert fake.offsets["etl"] == {("flights", number): offset for number, offset in found.items()}


def test_a_moment_after_the_last_record_is_the_end(run: Run, fake: Groups) -> None:
    fake.since = -1
    run("groups", "reset-offsets", "etl", "--by-duration", "PT5M", "--execute", *AT)
    assert fake.offsets["etl"] == {("flights", 0): 30, ("flights", 1): 31}


def test_offsets_that_a_log_has_not_are_said(run: Run, fake: Groups) -> None:
    result = run("groups", "reset-offsets", "etl", "--to-offset", "99", "--topic", "flights:0", *AT)
    assert result.stderr == "Note: flights-0 has no offset 99, it has 5 to 30.\n"


def test_a_group_with_members_is_not_reset(run: Run, fake: Groups) -> None:
    with_members(fake)
    why = "Group etl has 2 members (a at 10.0.0.1, b at 10.0.0.1): offsets can be reset only while it has none."
    result = run("groups", "reset-offsets", "etl", "--to-earliest", "--execute", *AT)
    assert (result.exit_code, result.stdout, why in result.stderr) == (6, "", True)
    result = run("groups", "reset-offsets", "etl", "--to-earliest", *AT)
    assert (result.exit_code, f"Nothing was changed, and cannot be now: {why}" in result.stdout) == (0, True)
    assert not fake.asked_of(ApiKey.OFFSET_COMMIT)


def test_a_member_that_joins_in_between_ends_a_reset(run: Run, fake: Groups) -> None:
    fake.errors[ApiKey.OFFSET_COMMIT] = [ErrorCode.UNKNOWN_MEMBER_ID]
    result = run("groups", "reset-offsets", "etl", "--to-earliest", "--execute", *AT)
    assert (result.exit_code, "only while it has none" in result.stderr) == (6, True)


def test_a_commit_that_a_moving_group_refuses_is_sent_again(run: Run, fake: Groups) -> None:
    fake.errors[ApiKey.OFFSET_COMMIT] = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert run("groups", "reset-offsets", "etl", "--to-earliest", "--execute", *AT).exit_code == 0
    assert fake.offsets["etl"] == {("flights", 0): 5, ("flights", 1): 5}


def test_partitions_that_were_not_reset_are_named(run: Run, fake: Groups) -> None:
    fake.errors[ApiKey.OFFSET_COMMIT] = [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    result = run("groups", "reset-offsets", "etl", "--to-earliest", "--execute", *AT)
    assert (result.exit_code, "flights-1 OFFSET_METADATA_TOO_LARGE" in result.stderr) == (1, True)


def test_a_leader_that_does_not_tell_ends_a_reset_before_anything_is_changed(run: Run, fake: Groups) -> None:
    fake.known[0].partitions[1].leader_id = -1
    result = run("groups", "reset-offsets", "etl", "--to-earliest", "--execute", *AT)
    assert (result.exit_code, "Nothing was changed: flights-1 has no leader" in result.stderr) == (1, True)
    assert not fake.asked_of(ApiKey.OFFSET_COMMIT)


def test_one_view_is_described_at_a_time(run: Run, fake: Groups) -> None:
    result = run("groups", "describe", "etl", "--members", "--state", *AT)
    assert (result.exit_code, "--members and --state exclude each other" in result.stderr) == (2, True)


def test_a_group_is_made_only_when_that_is_said(run: Run, fake: Groups) -> None:
    words = ("groups", "reset-offsets", "new", "--topic", "flights", "--to-latest", "--execute")
    result = run(*words, *AT)
    assert (result.exit_code, "--create makes it." in result.stderr) == (1, True)
    unscoped = run("groups", "reset-offsets", "new", "--to-latest", "--create", *AT)
    assert (unscoped.exit_code, "--create needs --topic or --from-file" in unscoped.stderr) == (2, True)
    assert run(*words, "--create", *AT).exit_code == 0
    assert fake.offsets["new"] == {("flights", 0): 30, ("flights", 1): 31, ("flights", 2): 32}


def test_what_was_exported_is_read_again(run: Run, fake: Groups, tmp_path: Path) -> None:
    exported = run("groups", "reset-offsets", "etl", "--shift-by", "1", "--export", *AT)
    assert exported.stdout == "flights,0,11\nflights,1,21\n"
    (tmp_path / "etl.csv").write_text(exported.stdout + "\n")
    assert run("groups", "reset-offsets", "etl", "--from-file", "etl.csv", "--execute", *AT).exit_code == 0
    assert fake.offsets["etl"] == {("flights", 0): 11, ("flights", 1): 21}
    (tmp_path / "all.csv").write_text(
        '"old","flights",0,1\n"etl","flights",0,9\n'
    )  # as Kafka's tool, of several groups
    assert run("groups", "reset-offsets", "etl", "--from-file", "all.csv", "--execute", *AT).exit_code == 0
    assert fake.offsets["etl"] == {("flights", 0): 9, ("flights", 1): 21}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("flights,0\n", "line 1: it is not topic,partition,offset"),
        ("flights,0,1\nflights,x,1\n", "line 2: it is not topic,partition,offset"),
        ("flights,0,1\nflights,0,2\n", "line 2: flights-0 stands there twice"),
        ("flights,0,99999999999999999999\n", "is no offset"),
        ("other,flights,0,1\n", "has no offsets of group etl"),
        ("", "has no offsets of group etl"),
    ],
)
def test_a_file_that_says_no_offsets_is_refused(
    run: Run, fake: Groups, tmp_path: Path, content: str, told: str
) -> None:
    (tmp_path / "etl.csv").write_text(content)
    result = run("groups", "reset-offsets", "etl", "--from-file", "etl.csv", "--execute", *AT)
    assert (result.exit_code, told in result.stderr, fake.asked) == (2, True, [])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "Say one of --to-earliest"),
        (("--to-earliest", "--to-latest"), "Say one of"),
        (("--to-offset", "-1"), "--to-offset"),
        (("--to-latest", "--topic", "flights:x"), "is not TOPIC or TOPIC:N,N"),
        (("--to-latest", "--topic", ":1"), "is not TOPIC or TOPIC:N,N"),
        (("--by-duration", "PT"), "is no length of time"),
        (("--by-duration", "P"), "is no length of time"),
        (("--by-duration", "soon"), "is no length of time"),
        (("--to-latest", "--export", "-o", "json"), "exclude each other"),
    ],
)
def test_a_reset_that_cannot_be_meant_is_wrong_use(run: Run, fake: Groups, words: tuple[str, ...], told: str) -> None:
    result = run("groups", "reset-offsets", "etl", *words, *AT)
    assert (result.exit_code, told in result.stderr) == (2, True), result.output


def test_what_is_not_there_is_named_before_anything_is_reset(run: Run, fake: Groups) -> None:
    for words, told in [
        (("--topic", "fligths", "--to-latest"), "There is no topic fligths. Did you mean flights?"),
        (("--topic", "flights:9", "--to-latest"), "Topic flights has no partition 9. It has 0 to 2."),
        (("--topic", "flights:2", "--shift-by", "1"), "Group etl has committed nothing in flights-2"),
    ]:
        result = run("groups", "reset-offsets", "etl", *words, "--execute", *AT)
        assert (result.exit_code, told in result.stderr) == (1, True), result.stderr
    assert "has committed no offsets" in run("groups", "reset-offsets", "old", "--to-latest", *AT).stderr


def test_delete_deletes_what_has_no_members(run: Run, fake: Groups) -> None:
    with_members(fake)
    result = run("groups", "delete", "old", "etl", "nobody", "--yes", "-o", "json", *AT)
    old, etl, nobody = json.loads(result.stdout)
    assert (result.exit_code, old) == (6, {"group": "old", "deleted": True, "error": None})
    assert "it is deleted only while it has none" in etl["error"]
    assert nobody["error"].startswith("There is no group nobody.")
    assert set(fake.states) == {"etl"}


def test_delete_asks_first(run: Run, fake: Groups) -> None:
    result = run("groups", "delete", "old", *AT)
    assert (result.exit_code, "Say --yes if it is meant." in result.stderr, "old" in fake.states) == (6, True, True)


def test_a_deletion_whose_answer_was_lost_is_done(run: Run, fake: Groups) -> None:
    fake.lost = [ApiKey.DELETE_GROUPS]
    result = run("groups", "delete", "old", "--yes", *AT)
    assert (result.exit_code, result.stdout, "old" in fake.states) == (0, "Deleted group old.\n", False)
    fake.errors[ApiKey.DELETE_GROUPS] = [ErrorCode.NOT_COORDINATOR]
    assert run("groups", "delete", "old", "--yes", *AT).exit_code == 1  # that answer says that nothing was done


def test_offsets_shows_what_is_committed_and_deletes_it_of_topics(run: Run, fake: Groups) -> None:
    assert run("groups", "offsets", "etl", *AT).stdout.splitlines()[1:] == [
        "flights  0          10              3             m",
        "flights  1          20              3             m",
    ]
    result = run("groups", "offsets", "etl", "flights", "--delete", "--yes", "-o", "json", *AT)
    told = json.loads(result.stdout)
    assert (told["deleted"], len(told["offsets"]), fake.offsets["etl"]) == (True, 2, {})


def test_offsets_that_members_need_stay(run: Run, fake: Groups) -> None:
    with_members(fake)
    result = run("groups", "offsets", "etl", "flights", "--delete", "--yes", *AT)
    assert (result.exit_code, "its members subscribe to topic flights" in result.stderr) == (6, True)


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("etl", "--delete"), 2, "--delete needs the topics"),
        (("etl", "flights", "--yes"), 2, "--yes goes with --delete"),
        (("etl", "flights", "--delete"), 6, "Say --yes"),
        (("etl", "nope"), 1, "There is no topic nope."),
        (("old", "flights"), 1, "Group old has committed no offsets of topic flights."),
        (("",), 2, "a group's name is not empty"),
    ],
)
def test_offsets_refuses(run: Run, fake: Groups, words: tuple[str, ...], status: int, told: str) -> None:
    result = run("groups", "offsets", *words, *AT)
    assert (result.exit_code, told in result.stderr) == (status, True), result.output
    assert len(fake.offsets["etl"]) == 2


def test_shells_complete_names_of_groups(fake: Groups) -> None:
    assert _group_names("nobody:1") == ["etl", "old"]
