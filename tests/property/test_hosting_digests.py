"""Digests of what brokers host, and what a difference leads to: whatever happens, in whatever order."""

from __future__ import annotations

from uuid import UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from regency.controller.state.reconcile_rules import Expected, Repair, compare
from regency.controller.state.reports import ReplicaReport
from regency.model.hosting import SERVED, HostedRole, replaced, replica_number, topic_number
from regency.model.ids import BrokerId, LeaderEpoch, Offset, TopicId, ZkVersion

small = st.integers(-1, 4)
roles = st.sampled_from(HostedRole)
replicas = st.tuples(st.integers(0, 3), small, small, small, roles)


def number(facts: tuple[int, int, int, int, HostedRole]) -> int:
    partition, leader, epoch, version, role = facts
    topic = topic_number(TopicId(UUID(int=7)))
    return replica_number(topic, partition, leader, LeaderEpoch(epoch), ZkVersion(version), role)


def counted(facts: tuple[int, int, int, int, HostedRole]) -> object:
    partition, leader, epoch, version, role = facts
    if role not in SERVED:
        return None
    return partition, leader, epoch, version if role is HostedRole.LEADER else None, role is not HostedRole.UNFED


@given(st.lists(st.tuples(st.integers(0, 5), replicas)))
def test_a_digest_kept_up_to_date_is_the_one_made_anew(changes):
    held: dict[int, tuple[int, int, int, int, HostedRole]] = {}
    digest = 0
    for key, facts in changes:
        digest = replaced(digest, number(held[key]) if key in held else 0, number(facts))
        held[key] = facts
    anew = 0
    for facts in reversed(held.values()):
        anew = replaced(anew, 0, number(facts))
    assert digest == anew
    assert 0 <= digest < 2**64


@given(replicas, replicas)
def test_replicas_differ_in_number_where_they_differ_in_what_counts(one, other):
    assert (number(one) == number(other)) == (counted(one) == counted(other))


@given(st.integers(1, 2), small, small, small, small, st.integers(1, 3), roles, st.booleans())
def test_a_report_that_says_what_is_wanted_is_left_alone_and_any_other_leads_to_something(
    leader, epoch, version, told_epoch, told_version, told_leader, role, same_topic
):
    topic_id = TopicId(UUID(int=7))
    wanted_role = HostedRole.LEADER if leader == 1 else HostedRole.FOLLOWER
    wanted = Expected(topic_id, wanted_role, BrokerId(leader), LeaderEpoch(epoch), ZkVersion(version))
    told = ReplicaReport(
        topic_id if same_topic else TopicId(UUID(int=8)),
        role,
        BrokerId(told_leader),
        LeaderEpoch(told_epoch),
        ZkVersion(told_version),
        Offset(0),
        Offset(0),
        Offset(0),
        (),
        "/d",
    )
    difference = compare(wanted, told)
    as_wanted = (
        same_topic
        and (role, told_leader, told_epoch) == (wanted_role, leader, epoch)
        and (role is HostedRole.FOLLOWER or told_version == version)
    )
    assert (difference is None) == as_wanted
    if difference is not None:
        assert difference.why
        newer = same_topic and role in SERVED and told_epoch > epoch
        assert not newer or difference.repair is Repair.READ
    exact = msgspec.structs.replace(
        told, topic_id=topic_id, role=wanted_role, leader=leader, leader_epoch=epoch, zk_version=version
    )
    assert compare(wanted, exact) is None
