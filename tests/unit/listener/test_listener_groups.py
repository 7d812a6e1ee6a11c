"""Groups over the wire, in every version: members, offsets, tools. The coordinator is the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from regency.broker_agent.listener.apis.membership import host_as_java
from regency.broker_agent.replication.api import ActiveProducer
from regency.kafka.codec import (
    DeleteGroupsRequest,
    DescribeAclsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

Serve = Callable[..., None]
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
FAST = {"group_initial_rebalance_delay_ms": 0}


def join(member_id: str = "", *, protocol_type: str = "consumer", instance: str | None = None) -> Any:
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)]
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=protocols,
        reason=None,
    )


def sync(member_id: str, generation: int, **assignments: bytes) -> Any:
    return SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=assignment)
            for each, assignment in assignments.items()
        ],
    )


def commit(
    *offsets: tuple[str, int, int], generation: int = -1, member_id: str = "", metadata: str | None = None
) -> Any:
    topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[
            topic_class(
                name=topic,
                partitions=[
                    topic_class.OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offset,
                        committed_leader_epoch=3,
                        committed_metadata=metadata,
                    )
                ],
            )
            for topic, number, offset in offsets
        ],
    )


def fetch(version: int, *partitions: tuple[str, int] | None, group: str = "g") -> Any:
    """None for all partitions."""
    named = None if partitions == (None,) else partitions
    if version >= 8:
        group_class = OffsetFetchRequest.OffsetFetchRequestGroup
        topic_class = group_class.OffsetFetchRequestTopics
    else:
        topic_class = OffsetFetchRequest.OffsetFetchRequestTopic
    topics = None if named is None else [topic_class(name=topic, partition_indexes=[number]) for topic, number in named]
    if version >= 8:
        return OffsetFetchRequest(groups=[group_class(group_id=group, topics=topics)], require_stable=True)
    return OffsetFetchRequest(group_id=group, topics=topics, require_stable=True)


def fetched(answer: Any, version: int) -> tuple[int, list[tuple[str, int, int, int, str, int]]]:
    (whole,) = answer.groups if version >= 8 else (answer,)
    error = whole.error_code if version >= 2 else 0
    return error, [
        (
            topic.name,
            row.partition_index,
            row.committed_offset,
            row.committed_leader_epoch,
            row.metadata,
            row.error_code,
        )
        for topic in whole.topics
        for row in topic.partitions
    ]


async def member_of(client: Any, version: int = 9) -> tuple[str, int]:
    """Join as the only member: its id and generation."""
    joined = await client.ask(join(), version)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = await client.ask(join(joined.member_id), version)
    assert joined.error_code == 0
    return joined.member_id, joined.generation_id


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_in_every_version(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        await h.lead_groups()
        client = await h.connect()
        joined = await client.ask(join(), version)
        if version >= 4:
            assert (joined.error_code, joined.generation_id, joined.leader) == (ErrorCode.MEMBER_ID_REQUIRED, -1, "")
            joined = await client.ask(join(joined.member_id), version)
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
        assert joined.protocol_type == ("consumer" if version >= 7 else None)
        assert joined.leader == joined.member_id
        assert joined.member_id.startswith("test-")
        assert [(each.member_id, each.metadata) for each in joined.members] == [(joined.member_id, SUBSCRIPTION)]

    serve(scenario, **FAST)


@pytest.mark.parametrize("version", range(10))
def test_a_refused_join_names_no_protocol(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        await h.lead_groups()
        refused = await (await h.connect()).ask(join("unknown"), version)
        assert (refused.error_code, refused.generation_id) == (ErrorCode.UNKNOWN_MEMBER_ID, -1)
        assert refused.protocol_name == (None if version >= 7 else "")
        assert refused.members == []

    serve(scenario, **FAST)


@pytest.mark.parametrize("version", range(6))
def test_the_assignment_of_the_leader_reaches_a_member_in_every_version(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        await h.lead_groups()
        client = await h.connect()
        member, generation = await member_of(client)
        synced = await client.ask(sync(member, generation, **{member: b"mine"}), version)
        assert (synced.error_code, synced.assignment) == (0, b"mine")
        assert (synced.protocol_type, synced.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))
        assert len(h.replicas.own) == 1

    serve(scenario, **FAST)


def test_a_sync_without_a_protocol_is_refused_from_version_5_on(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        await h.lead_groups()
        client = await h.connect()
        member, generation = await member_of(client)
        request = sync(member, generation)
        request.protocol_name = None
        assert (await client.ask(request, 5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    serve(scenario, **FAST)


@pytest.mark.parametrize("version", range(5))
def test_a_heartbeat_is_answered_in_every_version(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        await h.lead_groups()
        client = await h.connect()
        member, generation = await member_of(client)
        beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member, group_instance_id=None)
        assert (await client.ask(beat, version)).error_code == 0
        late = HeartbeatRequest(group_id="g", generation_id=generation - 1, member_id=member, group_instance_id=None)
        assert (await client.ask(late, version)).error_code == ErrorCode.ILLEGAL_GENERATION

    serve(scenario, **FAST)


@pytest.mark.parametrize("version", range(6))
def test_members_leave_in_every_version(serve: Serve, version: int) -> None:
    def leave(member_id: str) -> Any:
        identity = LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=None, reason="done")
        return LeaveGroupRequest(group_id="g", member_id=member_id, members=[identity])

    async def scenario(h: Any) -> None:
        await h.lead_groups()
        client = await h.connect()
        member, _ = await member_of(client)
        gone = await client.ask(leave(member), version)
        assert gone.error_code == 0
        stranger = await client.ask(leave("stranger"), version)
        if version >= 3:
            assert [(each.member_id, each.error_code) for each in gone.members] == [(member, 0)]
            assert [each.error_code for each in stranger.members] == [ErrorCode.UNKNOWN_MEMBER_ID]
        else:
            assert stranger.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    serve(scenario, **FAST)


def test_what_a_client_asks_while_its_join_waits_is_answered_after_it(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        await h.lead_groups()
        client = await h.connect()
        client.send(join(), 3)
        client.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), 9)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.readexactly(4), 0.3)

    serve(scenario, group_initial_rebalance_delay_ms=60_000)


def test_a_connection_that_ends_while_its_join_waits_harms_nobody(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        await h.lead_groups()
        gone = await h.connect()
        gone.send(join(), 3)
        await h.eventually(lambda: h.groups.describe("g").state == "PreparingRebalance", "it waits")
        await gone.close()
        await h.eventually(lambda: h.groups.describe("g").state == "CompletingRebalance", "the rebalance went on")

    serve(scenario, group_initial_rebalance_delay_ms=300)


@pytest.mark.parametrize("version", range(2, 10))
def test_offsets_are_committed_in_every_version(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        await h.lead_groups()
        client = await h.connect()
        answer = await client.ask(commit(("t", 0, 42), ("t", 9, 1), ("unknown", 0, 1), metadata="m"), version)
        assert [
            (topic.name, row.partition_index, row.error_code) for topic in answer.topics for row in topic.partitions
        ] == [
            ("t", 0, 0),
            ("t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("unknown", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        epoch = 3 if version >= 6 else -1
        assert fetched(await client.ask(fetch(9, None), 9), 9) == (0, [("t", 0, 42, epoch, "m", 0)])

    serve(scenario)


@pytest.mark.parametrize("version", range(1, 10))
def test_offsets_are_fetched_in_every_version(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        await h.lead_groups()
        client = await h.connect()
        await client.ask(commit(("t", 0, 42)), 9)
        epoch = 3 if version >= 5 else -1
        row = ("t", 0, 42, epoch, "", 0)
        assert fetched(await client.ask(fetch(version, ("t", 0), ("u", 7)), version), version) == (
            0,
            [row, ("u", 7, -1, -1, "", 0)],
        )
        if version >= 2:
            assert fetched(await client.ask(fetch(version, None), version), version) == (0, [row])

    serve(scenario)


@pytest.mark.parametrize("version", range(1, 10))
def test_a_broker_that_does_not_keep_the_group_says_so_in_every_version(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("__consumer_offsets", leader=2)
        answer = await (await h.connect()).ask(fetch(version, ("t", 0)), version)
        error = ErrorCode.NOT_COORDINATOR
        assert fetched(answer, version) == ((error, []) if version >= 2 else (0, [("t", 0, -1, -1, "", error)]))

    serve(scenario)


def test_a_commit_with_a_retention_expires_by_it(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        await h.lead_groups()
        request = commit(("t", 0, 42))
        request.retention_time_ms = 60_000
        await (await h.connect()).ask(request, 4)
        held = h.groups.fetch_offsets("g", None, require_stable=False)[TopicPartition("t", 0)]
        assert held.expire_ms == held.commit_ms + 60_000

    serve(scenario)


@pytest.mark.parametrize("version", range(6))
def test_groups_are_described_in_every_version(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        await h.lead_groups()
        client = await h.connect()
        member, generation = await member_of(client)
        await client.ask(sync(member, generation, **{member: b"mine"}), 5)
        request = DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=True)
        described, missing = (await client.ask(request, version)).groups
        assert (described.group_state, described.protocol_type, described.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        (row,) = described.members
        assert (row.member_id, row.client_id, row.client_host) == (member, "test", "/127.0.0.1")
        assert (row.member_metadata, row.member_assignment) == (SUBSCRIPTION, b"mine")
        assert (missing.error_code, missing.group_state, missing.members) == (0, "Dead", [])
        if version >= 3:
            assert described.authorized_operations == {3, 6, 8}

    serve(scenario, **FAST)


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_in_every_version(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        await h.lead_groups()
        client = await h.connect()
        await client.ask(commit(("t", 0, 42)), 9)
        request = ListGroupsRequest(states_filter=["empty"], types_filter=["Classic"])
        answer = await client.ask(request, version)
        assert answer.error_code == 0
        (row,) = answer.groups
        assert (row.group_id, row.protocol_type) == ("g", "")
        if version >= 4:
            assert row.group_state == "Empty"
            assert (
                await client.ask(ListGroupsRequest(states_filter=["stable"], types_filter=[]), version)
            ).groups == []
        if version >= 5:
            assert row.group_type == "classic"
            assert (
                await client.ask(ListGroupsRequest(states_filter=[], types_filter=["consumer"]), version)
            ).groups == []

    serve(scenario)


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_in_every_version(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        await h.lead_groups()
        client = await h.connect()
        await client.ask(commit(("t", 0, 42)), 9)
        answer = await client.ask(DeleteGroupsRequest(groups_names=["g", "none", "g"]), version)
        assert {row.group_id: row.error_code for row in answer.results} == {
            "g": 0,
            "none": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert (await client.ask(DeleteGroupsRequest(groups_names=[]), version)).results == []

    serve(scenario)


def test_single_offsets_are_deleted(serve: Serve) -> None:
    topic_class = OffsetDeleteRequest.OffsetDeleteRequestTopic

    def delete(group: str, *topics: str) -> Any:
        partition = topic_class.OffsetDeleteRequestPartition(partition_index=0)
        return OffsetDeleteRequest(
            group_id=group, topics=[topic_class(name=name, partitions=[partition]) for name in topics]
        )

    async def scenario(h: Any) -> None:
        h.with_topic("t")
        await h.lead_groups()
        client = await h.connect()
        await client.ask(commit(("t", 0, 42)), 9)
        answer = await client.ask(delete("g", "t", "unknown"), 0)
        assert answer.error_code == 0
        assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {
            "t": 0,
            "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert (await client.ask(delete("none", "t"), 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    serve(scenario)


@pytest.mark.parametrize("version", range(1, 4))
def test_there_are_no_acls_and_tools_are_told_so(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        request = DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        answer = await (await h.connect()).ask(request, version)
        assert (answer.error_code, answer.error_message) == (54, "No Authorizer is configured on the broker")
        assert answer.resources == []

    serve(scenario)


def test_producers_of_a_partition_are_told(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.replicas.producers[TopicPartition("t", 0)] = [ActiveProducer(7, 1, 41, 1_000)]
        topics = [DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 1])]
        answer = await (await h.connect()).ask(DescribeProducersRequest(topics=topics), 0)
        led, other = answer.topics[0].partitions
        (producer,) = led.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 1, 41)
        assert (producer.last_timestamp, producer.coordinator_epoch, producer.current_txn_start_offset) == (
            1_000,
            -1,
            -1,
        )
        assert (other.error_code, other.active_producers) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])

    serve(scenario)


@pytest.mark.parametrize(
    ("host", "kept"),
    [
        ("10.0.0.1", "/10.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("::ffff:10.0.0.1", "/10.0.0.1"),
        ("fe80::1%eth0", "/fe80:0:0:0:0:0:0:1"),
        ("unknown", "/unknown"),
    ],
)
def test_hosts_of_members_are_kept_as_java_writes_them(host: str, kept: str) -> None:
    assert host_as_java(host) == kept
