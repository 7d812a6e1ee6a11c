"""Defects of the coordinator of groups and of its edge, many of which Kafka's had."""

from __future__ import annotations

from regency.broker_agent.groups import group as groups
from regency.broker_agent.groups.coordinator import GroupCoordinator
from regency.broker_agent.groups.group import Group
from regency.broker_agent.groups.loading import Load
from regency.broker_agent.groups.membership import Membership
from regency.broker_agent.groups.offsets import GroupOffsets
from regency.broker_agent.groups.shard import GroupShard
from regency.broker_agent.listener.apis import coordinators
from regency.broker_agent.replication.offsets import OffsetQueries
from regency.broker_agent.replication.produce import ProducePath
from simulation.defects.patching import Defect, Defects, Patch

_ALL = Defects()

# Taking partitions over, and giving them up


@_ALL.of("KAFKA-7286")
def loaded_in_part(patch: Patch) -> None:
    """loading ends after the first piece"""
    patch.edit(Load, "run", ("if offset >= read.log_end:", "if True:"))


@_ALL.of("Kafka 2.0")
def loaded_to_the_watermark(patch: Patch) -> None:
    """a partition is loaded up to the high watermark that its new leader knows of"""
    patch.edit(OffsetQueries, "read_led", ("end = log.log_end_offset", "end = log.high_watermark"))


@_ALL.of("KAFKA-9065")
def holes_end_loading(patch: Patch) -> None:
    """what comes after a hole in the log is not loaded"""
    patch.edit(
        Load,
        "_take",
        (
            "following = header.next_offset\n",
            "following = header.next_offset if header.base_offset == max(following, offset) else Offset(-1)\n",
        ),
    )


@_ALL.of("own rule")
def first_record_counts(patch: Patch) -> None:
    """of several offsets of a partition the first in the log is loaded"""
    patch.edit(
        GroupShard,
        "load",
        (
            "group.offsets.set(about.topic, about.partition, stored)",
            "about.partition in group.offsets._topics.get(about.topic, ()) or group.offsets.set(*about[1:], stored)",
        ),
    )


@_ALL.of("own rule")
def tombstones_skipped(patch: Patch) -> None:
    """what was deleted is there again when it is loaded"""
    patch.edit(GroupShard, "load", ("about = read_key(key)", "about = None if value is None else read_key(key)"))


@_ALL.of("own rule")
def served_while_loaded(patch: Patch) -> None:
    """groups are served while they are being loaded, from what there is of them"""
    patch.edit(GroupCoordinator, "_find", ("if led.loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS", ""))
    patch.edit(GroupCoordinator, "_on_time", ("if led.loaded and deadline_ms", "if deadline_ms"))


@_ALL.of("own rule")
def members_not_loaded(patch: Patch) -> None:
    """a new coordinator knows offsets and generations, and no members"""
    patch.edit(
        Group,
        "restore",
        ("for kept in () if value is None else value.members:", "for kept in ():"),
        ("if value is not None and value.members else", "if False else"),
    )


@_ALL.of("own rule")
def generation_not_loaded(patch: Patch) -> None:
    """a new coordinator counts generations from nought"""
    patch.edit(Group, "restore", ("0 if value is None else value.generation", "0"))


@_ALL.of("own rule")
def assignments_not_loaded(patch: Patch) -> None:
    """a new coordinator does not know who has what"""
    patch.edit(Group, "restore", ("member.assignment = kept.assignment", "pass"))


@_ALL.of("own rule")
def sessions_over_when_loaded(patch: Patch) -> None:
    """members have no time to find their new coordinator"""
    patch.edit(
        Group, "begin", ("self._restart_session(member, now_ms)", "self._context.timers.arm(member.session, now_ms)")
    )


@_ALL.of("own rule")
def sessions_not_begun(patch: Patch) -> None:
    """members that a new coordinator never hears of stay for ever"""
    patch.edit(Group, "begin", ("self._restart_session(member, now_ms)", "pass"))


@_ALL.of("own rule")
def later_epochs_unnoticed(patch: Patch) -> None:
    """a coordinator goes on in the leader epoch in which it began"""
    patch.edit(GroupCoordinator, "_role_changed", ("led.epoch = epoch", "pass"))


@_ALL.of("own rule")
def never_given_up(patch: Patch) -> None:
    """who leads a partition no more keeps its groups, and goes on with them when it leads again"""
    patch.edit(GroupCoordinator, "_role_changed", ("self._resign(number)", "pass"))


@_ALL.of("own rule")
def waiters_forgotten(patch: Patch) -> None:
    """who waits for a coordinator that gives its groups up is not answered"""
    patch.edit(
        Group,
        "die",
        ("self.members.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id), out)", "pass"),
        ("self.members.answer_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR), out)", "pass"),
    )


@_ALL.of("own rule")
def partitions_counted_early(patch: Patch) -> None:
    """how many partitions groups are spread over is taken from the first that is heard of their topic"""
    patch.edit(
        GroupCoordinator,
        "_metadata_changed",
        ("self._read_count(topic_id)", "assert topic is not None; self._count = len(topic.partitions)"),
    )


@_ALL.of("own rule")
def spread_by_settings(patch: Patch) -> None:
    """clients are sent where a group would be if its topic had the partitions that the settings say"""
    patch.edit(
        coordinators,
        "_find_group",
        ("services.groups.partition_of(group_id)", "partition_of(group_id, 50)"),
        (
            "snapshot = services.metadata.current\n",
            "from regency.kafka.groups.placement import partition_of; snapshot = services.metadata.current\n",
        ),
    )


# Offsets


@_ALL.of("own rule")
def committed_by_one(patch: Patch) -> None:
    """a commit is answered when its coordinator alone has it"""
    patch.edit(ProducePath, "append_own", ("{} if end is None else {topic_partition: end}", "{}"))


@_ALL.of("own rule")
def refused_commits_shown(patch: Patch) -> None:
    """an offset that could not be written is told to readers"""
    patch.edit(GroupShard, "_on_committed", ("written=written)", "written=True)"))


@_ALL.of("own rule")
def refused_commits_erase(patch: Patch) -> None:
    """where a commit could not be written, the one before it is forgotten too"""
    patch.edit(
        GroupOffsets,
        "decide",
        ("undecided.decided = number", "undecided.decided, stored = number, stored if written else None"),
        ("if not written or", "if"),
    )


@_ALL.of("own rule")
def late_commits_count_as_made(patch: Patch) -> None:
    """a commit that replicas do not have in time is answered as if they had it"""
    patch.edit(
        GroupShard,
        "_on_committed",
        ("COMMITTING_FAILED.get(error, error)", "ErrorCode.NONE if error is ErrorCode.REQUEST_TIMED_OUT else error"),
    )


@_ALL.of("KAFKA-16371")
def refused_metadata_stays_open(patch: Patch) -> None:
    """a commit one part of which is refused leaves that part undecided"""
    patch.edit(GroupShard, "commit", ("for partition in values:\n", "for partition in offsets:\n"))


@_ALL.of("own rule")
def deletions_answered_unwritten(patch: Patch) -> None:
    """a group counts as deleted before that is in the log"""
    patch.edit(
        GroupShard,
        "_erase_in_turn",
        (
            "return self._erase({group: piece}, go_on)",
            "out = self._erase({group: piece}, lambda _: Effects()); out.add(go_on(ErrorCode.NONE)); return out",
        ),
    )


# Generations


@_ALL.of("own rule")
def any_generation_lives(patch: Patch) -> None:
    """heartbeats of old generations are answered well"""
    patch.edit(
        Group,
        "heartbeat",
        (
            "error = self._check(caller.member_id, caller.instance_id, caller.generation)",
            "error = self.members.check(caller.member_id, caller.instance_id)",
        ),
    )


@_ALL.of("own rule")
def any_generation_commits(patch: Patch) -> None:
    """a commit of an older generation of its group is taken"""
    patch.edit(
        Group,
        "may_commit",
        (
            "error = self._check(caller.member_id, caller.instance_id, caller.generation)",
            "error = self.members.check(caller.member_id, caller.instance_id)",
        ),
    )


@_ALL.of("own rule")
def assigned_before_stored(patch: Patch) -> None:
    """members get their assignments before these are in the log"""
    patch.edit(
        Group,
        "sync",
        (
            "out.appends.append(Append((self._record(assignments),), done))",
            "out.appends.append(Append((self._record(assignments),), _nothing_follows)); out.add(done(error, now_ms))",
        ),
    )


@_ALL.of("own rule")
def storing_failed_unnoticed(patch: Patch) -> None:
    """members get assignments that could not be written"""
    patch.edit(Group, "_on_assignment_stored", ("if error is not ErrorCode.NONE:", "if False:"))


@_ALL.of("own rule")
def stored_late_and_believed(patch: Patch) -> None:
    """what was written for one generation is handed out in the next"""
    patch.edit(
        Group,
        "_on_assignment_stored",
        (" or self.generation != generation", ""),
        ("assignments[member.member_id]", "assignments.get(member.member_id, b'')"),
    )


@_ALL.of("own rule")
def anybody_assigns(patch: Patch) -> None:
    """the first member that asks for its assignment is taken for the leader"""
    patch.edit(Group, "sync", ("self.members.leader == member.member_id and not", "not"))


@_ALL.of("KAFKA-12890")
def no_time_for_syncs(patch: Patch) -> None:
    """a member that never asks for its assignment holds the group up"""
    patch.edit(
        Group,
        "_complete_join",
        ("self._context.timers.arm(self._sync_timer, now_ms + self.members.longest_rebalance_ms())", "pass"),
    )


@_ALL.of("own rule")
def no_time_for_joins(patch: Patch) -> None:
    """a member that does not join again holds the group up until its session ends"""
    patch.edit(Group, "_prepare", ("timers.arm(self._join_timer, now_ms + rebalance_ms)", "pass"))


@_ALL.of("own rule")
def rebalances_untold(patch: Patch) -> None:
    """members do not hear that they have to join again"""
    patch.edit(Group, "heartbeat", ("self.state is GroupState.PREPARING_REBALANCE", "False"))


@_ALL.of("own rule")
def leavers_not_replaced(patch: Patch) -> None:
    """a member that leaves is taken out, and nobody gets what it had"""
    patch.edit(Group, "_lose", ("self._rebalance(now_ms, out)", "pass"))


@_ALL.of("own rule")
def timers_forgotten(patch: Patch) -> None:
    """once something was due, nothing wakes the coordinator for what is due later"""
    patch.edit(
        GroupCoordinator,
        "_on_time",
        ("        self._arm(led.shard.next_deadline_ms)", "        pass"),
        ("self._do(led, led.shard.on_time(now_ms))", "led.shard.on_time(now_ms)"),
    )


# Members


@_ALL.of("own rule")
def heartbeats_do_not_count(patch: Patch) -> None:
    """a member that says that it lives is taken for dead all the same"""
    patch.edit(Group, "heartbeat", ("self._restart_session_of(caller.member_id, now_ms)", "pass"))


@_ALL.of("KAFKA-10284")
def replacements_not_stored(patch: Patch) -> None:
    """that a static member has another id is not written: after a fail-over the one before is valid again"""
    patch.edit(
        Group,
        "_replace",
        ("out.appends.append(Append((record,), stored))", "out.add(stored(ErrorCode.NONE, now_ms))"),
    )


@_ALL.of("KAFKA-9801")
def replaced_without_a_rebalance(patch: Patch) -> None:
    """a static member that is started again while its leader assigns goes on in that generation, under another id"""
    condition = "if self.state is not GroupState.STABLE or self.members.vote() != self.protocol:\n"
    at_once = "self.members.answer_join(member, self._joined(member), out)"
    goes_on = f"if self.state is GroupState.COMPLETING_REBALANCE:\n        return {at_once}\n    "
    patch.edit(Group, "_replace", (condition, goes_on + condition))


@_ALL.of("KIP-345")
def fenced_not_answered(patch: Patch) -> None:
    """a static member whose place another one has taken is not told so: it is unknown, and takes the place back"""
    patch.edit(Membership, "check", ("return ErrorCode.FENCED_INSTANCE_ID", "return ErrorCode.UNKNOWN_MEMBER_ID"))


@_ALL.of("own rule")
def syncs_answered_again(patch: Patch) -> None:
    """a member that has its assignment is answered once more when the next generation begins"""
    patch.edit(Membership, "answer_sync", ("member.parked_sync = None\n", "pass\n"))


@_ALL.of("KAFKA-9752")
def new_members_wait_for_ever(patch: Patch) -> None:
    """a new member whose client is gone is waited for as long as it is not answered"""
    patch.set(groups, "NEW_MEMBER_JOIN_TIMEOUT_MS", 1 << 40)


BECAUSE: dict[str, str] = {
    "new-members-wait-for-ever": "harmless since a rebalance has an end of its own (KAFKA-12890): when it comes, every "
    "join is answered, and a member that does not ask for its assignment goes when the time for that is over",
}
"""Why the simulation does not find them."""

DEFECTS: tuple[Defect, ...] = tuple(defect for defect in _ALL if defect.name not in BECAUSE)

UNSEEN: tuple[Defect, ...] = tuple(defect for defect in _ALL if defect.name in BECAUSE)
"""Planted in vain."""
