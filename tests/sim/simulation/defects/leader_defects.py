"""Defects of leaders: what counts as replicated, who is in sync, whom they answer what."""

from __future__ import annotations

from regency.broker_agent.replication import fetch
from regency.broker_agent.replication.control import ControlPath
from regency.broker_agent.replication.fetch import FetchPath
from regency.broker_agent.replication.fetch_sessions import _Entry
from regency.broker_agent.replication.fetcher import follow_state
from regency.broker_agent.replication.followers import RemoteReplica
from regency.broker_agent.replication.hosting import HostedPartitions
from regency.broker_agent.replication.isr_maintenance import IsrMaintenance
from regency.broker_agent.replication.offsets import OffsetQueries
from regency.broker_agent.replication.partition import Partition
from regency.broker_agent.replication.produce import ProducePath, _DelayedProduce
from simulation.defects.patching import Defects, Patch

DEFECTS = Defects()

# Produce


@DEFECTS.of("own rule")
def acknowledge_early(patch: Patch) -> None:
    """acks=all is answered once the leader has it"""
    patch.edit(ProducePath, "outcome", ("partition.log.high_watermark < required", "False"))


@DEFECTS.of("KAFKA-9198")
def acknowledge_deposed(patch: Patch) -> None:
    """a produce whose time is over is acknowledged by the high watermark of a later epoch, led by somebody else"""
    patch.edit(
        ProducePath,
        "outcome",
        ("find_led(topic_partition)", "find(topic_partition)"),
        ("len(partition.isr.maximal) < self._hosting.min_insync(topic_partition.topic)", "False"),
    )
    late = "self._settle(partition, ErrorCode.REQUEST_TIMED_OUT)"
    now = "now = self._path.outcome(partition, self._required[partition])"
    patch.edit(
        _DelayedProduce,
        "finish",
        (late, f"{now}\n        self._settle(partition, ErrorCode.REQUEST_TIMED_OUT if now is None else now)"),
    )


@DEFECTS.of("KIP-320")
def append_deposed(patch: Patch) -> None:
    """a producer's records are appended by who does not lead"""
    patch.edit(
        ProducePath,
        "_append_one",
        ("find_led(topic_partition, leader_epoch)", "find(topic_partition)"),
        ("if acks == ALL:", "if acks == ALL and partition.is_leader:"),
    )


@DEFECTS.of("KIP-966")
def min_insync_unchecked(patch: Patch) -> None:
    """min.insync.replicas is 1, whatever is set"""
    patch.edit(HostedPartitions, "min_insync", ("self.topic_config(topic).min_insync_replicas", "1"))


@DEFECTS.of("KAFKA-9198")
def role_untold(patch: Patch) -> None:
    """who waits is not told that the leader has changed"""
    patch.edit(ControlPath, "_transition", ("self._hosting.changed(partition.topic_partition)", "pass"))


@DEFECTS.of("KAFKA-9198, KAFKA-9235")
def stop_untold(patch: Patch) -> None:
    """who waits is not told that the replica was stopped"""
    patch.edit(ControlPath, "_stop", ("hosting.changed(name)", "pass"))


# High watermark


def _advance(patch: Patch, before: str, after: str) -> None:
    patch.edit(Partition, "maybe_advance_high_watermark", (before, after))


@DEFECTS.of("KIP-966, KAFKA-15583")
def watermark_below_min_insync(patch: Patch) -> None:
    """the high watermark advances while fewer than min.insync.replicas are in sync"""
    _advance(patch, "len(self.isr.committed) <", "0 >")


@DEFECTS.of("KIP-320")
def watermark_over_unknown(patch: Patch) -> None:
    """the high watermark does not wait for followers of which nothing is known yet in this epoch"""
    _advance(patch, "replica.log_end_offset < lowest and (", "0 <= replica.log_end_offset < lowest and (")


@DEFECTS.of("KIP-497")
def watermark_by_committed(patch: Patch) -> None:
    """the high watermark does not wait for those who are on their way into the ISR"""
    patch.edit(
        Partition,
        "maybe_advance_high_watermark",
        ("replica.broker in maximal\n", "replica.broker in self.isr.committed\n"),
        ("or (replica.caught", "or replica.broker not in maximal and (replica.caught"),
    )


@DEFECTS.of("KIP-497")
def watermark_by_target(patch: Patch) -> None:
    """the high watermark does not wait for those who are on their way out of the ISR"""
    _advance(patch, "maximal = self.isr.maximal", "maximal = getattr(self.isr, 'target', self.isr.committed)")


@DEFECTS.of("KAFKA-10301")
def watermark_alone(patch: Patch) -> None:
    """while the assignment is taken there are no followers for a moment, and the high watermark is advanced"""
    cleared = "held, self.remotes = self.remotes, {}\n    self.maybe_advance_high_watermark(0)"
    patch.edit(Partition, "_take_assignment", ("held = self.remotes", cleared))


@DEFECTS.of("TLA+ model Kip320")
def remote_ends_kept(patch: Patch) -> None:
    """a new epoch goes on with the followers' ends of the last"""
    patch.edit(RemoteReplica, "forget", ("self._forget_offsets()", "pass"))


# ISR


@DEFECTS.of("KAFKA-7128")
def join_below_epoch_start(patch: Patch) -> None:
    """a follower joins the ISR with the records below the high watermark, but not those the epoch began with"""
    patch.edit(
        Partition, "propose_expand", ("max(self.log.high_watermark, self.epoch_start)", "self.log.high_watermark")
    )


@DEFECTS.of("KIP-903, KAFKA-15221")
def broker_epoch_ignored(patch: Patch) -> None:
    """fetches of an earlier incarnation of a follower count"""
    patch.edit(
        Partition,
        "_may_join",
        ("replica.broker_epoch != NO_BROKER_EPOCH", "True"),
        ("peers.broker_epoch(replica.broker) == replica.broker_epoch", "True"),
    )
    patch.edit(Partition, "admit_follower", ("if broker_epoch != NO_BROKER_EPOCH:", "if False:"))
    patch.edit(Partition, "counts_as_before", ("replica.broker_epoch != broker_epoch", "False"))
    patch.edit(FetchPath, "_read_for_follower", ("known_epoch == broker_epoch", "True"))
    patch.edit(RemoteReplica, "count_fetch", ("self.broker_epoch not in (NO_BROKER_EPOCH, broker_epoch)", "False"))
    patch.edit(Partition, "count_fetch", ("broker_epoch != self._rules.peers.broker_epoch(broker)", "False"))


@DEFECTS.of("own rule")
def unconfirmed_follower_counts(patch: Patch) -> None:
    """fetches of a follower count for an incarnation that nobody has confirmed"""
    newer = "broker_epoch < (self._rules.peers.broker_epoch(broker) or 0)"
    patch.edit(Partition, "count_fetch", ("broker_epoch != self._rules.peers.broker_epoch(broker)", newer))


@DEFECTS.of("KIP-841")
def join_while_leaving(patch: Patch) -> None:
    """a broker that shuts down joins the ISR"""
    patch.edit(Partition, "_may_join", ("not peers.is_shutting_down(replica.broker)", "True"))


@DEFECTS.of("KAFKA-12686, KAFKA-12751")
def outcome_of_older_epoch(patch: Patch) -> None:
    """the outcome of an ISR change is taken over whatever has replaced it"""
    patch.edit(Partition, "isr_written", ("self.isr is not pending or zk_version < pending.zk_version", "False"))


@DEFECTS.of("KAFKA-13091")
def watermark_not_tried_again(patch: Patch) -> None:
    """when an ISR change is written the high watermark is not looked at again"""
    changed = 'crash_point("replication.isr.before_high_watermark")\n    self._advance(partition, now_ms)\n'
    patch.edit(IsrMaintenance, "_finish", (changed, ""))
    patch.edit(IsrMaintenance, "_look", ("self._advance(partition, now_ms)", "pass"))


# Epochs


@DEFECTS.of("KIP-320, KAFKA-7395")
def fetch_without_epoch(patch: Patch) -> None:
    """fetches count whatever epoch they name"""
    patch.edit(Partition, "check_epoch", ("current == NO_LEADER_EPOCH or current == self.leader_epoch", "True"))
    patch.edit(Partition, "count_fetch", ("wanted.current_leader_epoch != self.leader_epoch", "False"))
    patch.edit(Partition, "counts_as_before", ("wanted.current_leader_epoch != self.leader_epoch", "False"))


@DEFECTS.of("own rule")
def stale_state_taken(patch: Patch) -> None:
    """a LeaderAndIsr of a lower leader epoch is applied"""
    patch.edit(ControlPath, "_admit", ("state.leader_epoch < partition.leader_epoch", "False"))
    patch.edit(ControlPath, "_is_transition", ("state.leader_epoch > partition", "state.leader_epoch != partition"))


@DEFECTS.of("KIP-279")
def epoch_start_unwritten(patch: Patch) -> None:
    """a leader notes its epoch only with its first record"""
    patch.edit(Partition, "become_leader", ("self.log.assign_epoch(state.leader_epoch, start)", "pass"))


@DEFECTS.of("KIP-101")
def divergence_unseen(patch: Patch) -> None:
    """followers are never told where their logs differ"""
    patch.edit(Partition, "diverging_epoch", ("last_fetched_epoch == NO_LEADER_EPOCH", "True"))


@DEFECTS.of("KIP-279")
def divergence_by_offset(patch: Patch) -> None:
    """leaders tell followers an offset only, and which epoch ends there is not looked at"""
    patch.edit(Partition, "diverging_epoch", ("end.leader_epoch < last_fetched_epoch or", ""))
    patch.edit(follow_state, "truncation_point", ("leader.leader_epoch == NO_LEADER_EPOCH", "True"))


@DEFECTS.of("KAFKA-13141")
def diverging_fetch_counts(patch: Patch) -> None:
    """a fetch counts although its log differs"""
    patch.edit(FetchPath, "_read", (" and fetched.diverging is None", ""))


@DEFECTS.of("KAFKA-12996")
def below_start_unseen(patch: Patch) -> None:
    """where logs differ is told before anybody looks whether the offset is below the log start"""
    patch.edit(
        fetch, "_read_log", ("if offset < start:", "if False:"), ("if offset > end:", "if not start <= offset <= end:")
    )


# Consumers


@DEFECTS.of("own rule")
def consumers_read_on(patch: Patch) -> None:
    """consumers read to the log end"""
    patch.edit(fetch, "_read_log", ("end if reading.params.from_follower else high_watermark", "end"))


@DEFECTS.of("KIP-207")
def end_goes_back(patch: Patch) -> None:
    """a new leader tells its high watermark at once as the end"""
    patch.edit(OffsetQueries, "list_offset", ("not from_consumer or end >= partition.epoch_start", "True"))


@DEFECTS.of("KIP-107")
def begins_at_the_end(patch: Patch) -> None:
    """clients that ask for the earliest offset are told the high watermark"""
    patch.edit(OffsetQueries, "list_offset", ("partition.log.log_start_offset", "partition.log.high_watermark"))


@DEFECTS.of("KAFKA-9338")
def session_keeps_epoch(patch: Patch) -> None:
    """a fetch session keeps the leader epoch it began with"""
    kept = (
        "self.wanted = type(wanted)(wanted.topic_partition, wanted.topic_id, wanted.fetch_offset, wanted.max_bytes, "
        "self.wanted.current_leader_epoch, wanted.last_fetched_epoch, wanted.log_start_offset)"
    )
    patch.edit(_Entry, "ask_again", ("self.wanted = wanted", kept))
