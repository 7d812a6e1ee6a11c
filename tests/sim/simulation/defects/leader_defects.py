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
from simulation.defects.patching import Defect, Patch

# Produce


def _acknowledge_early(patch: Patch) -> None:
    patch.edit(ProducePath, "outcome", ("partition.log.high_watermark < required", "False"))


def _acknowledge_deposed(patch: Patch) -> None:
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


def _append_deposed(patch: Patch) -> None:
    patch.edit(
        ProducePath,
        "_append_one",
        ("find_led(topic_partition)", "find(topic_partition)"),
        ("if acks == ALL:", "if acks == ALL and partition.is_leader:"),
    )


def _min_insync_unchecked(patch: Patch) -> None:
    patch.edit(HostedPartitions, "min_insync", ("self.topic_config(topic).min_insync_replicas", "1"))


def _role_untold(patch: Patch) -> None:
    patch.edit(ControlPath, "_transition", ("self._hosting.changed(partition.topic_partition)", "pass"))


def _stop_untold(patch: Patch) -> None:
    patch.edit(ControlPath, "_stop", ("hosting.changed(name)", "pass"))


# High watermark


def _advance(patch: Patch, before: str, after: str) -> None:
    patch.edit(Partition, "maybe_advance_high_watermark", (before, after))


def _watermark_below_min_insync(patch: Patch) -> None:
    _advance(patch, "len(self.isr.committed) <", "0 >")


def _watermark_over_unknown(patch: Patch) -> None:
    _advance(patch, "replica.log_end_offset < lowest and (", "0 <= replica.log_end_offset < lowest and (")


def _watermark_by_committed(patch: Patch) -> None:
    patch.edit(
        Partition,
        "maybe_advance_high_watermark",
        ("replica.broker in maximal\n", "replica.broker in self.isr.committed\n"),
        ("or (replica.caught", "or replica.broker not in maximal and (replica.caught"),
    )


def _watermark_by_target(patch: Patch) -> None:
    _advance(patch, "maximal = self.isr.maximal", "maximal = getattr(self.isr, 'target', self.isr.committed)")


def _watermark_alone(patch: Patch) -> None:
    cleared = "held, self.remotes = self.remotes, {}\n    self.maybe_advance_high_watermark(0)"
    patch.edit(Partition, "_take_assignment", ("held = self.remotes", cleared))


def _remote_ends_kept(patch: Patch) -> None:
    patch.edit(RemoteReplica, "forget", ("self._forget_offsets()", "pass"))


# ISR


def _join_below_epoch_start(patch: Patch) -> None:
    patch.edit(
        Partition, "propose_expand", ("max(self.log.high_watermark, self.epoch_start)", "self.log.high_watermark")
    )


def _broker_epoch_ignored(patch: Patch) -> None:
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


def _unconfirmed_follower_counts(patch: Patch) -> None:
    newer = "broker_epoch < (self._rules.peers.broker_epoch(broker) or 0)"
    patch.edit(Partition, "count_fetch", ("broker_epoch != self._rules.peers.broker_epoch(broker)", newer))


def _join_while_leaving(patch: Patch) -> None:
    patch.edit(Partition, "_may_join", ("not peers.is_shutting_down(replica.broker)", "True"))


def _outcome_of_older_epoch(patch: Patch) -> None:
    patch.edit(Partition, "isr_written", ("self.isr is not pending or zk_version < pending.zk_version", "False"))


def _watermark_not_tried_again(patch: Patch) -> None:
    changed = 'crash_point("replication.isr.before_high_watermark")\n    self._advance(partition, now_ms)\n'
    patch.edit(IsrMaintenance, "_finish", (changed, ""))
    patch.edit(IsrMaintenance, "_look", ("self._advance(partition, now_ms)", "pass"))


# Epochs


def _fetch_without_epoch(patch: Patch) -> None:
    patch.edit(Partition, "check_epoch", ("current == NO_LEADER_EPOCH or current == self.leader_epoch", "True"))
    patch.edit(Partition, "count_fetch", ("wanted.current_leader_epoch != self.leader_epoch", "False"))
    patch.edit(Partition, "counts_as_before", ("wanted.current_leader_epoch != self.leader_epoch", "False"))


def _stale_state_taken(patch: Patch) -> None:
    patch.edit(ControlPath, "_admit", ("state.leader_epoch < partition.leader_epoch", "False"))
    patch.edit(ControlPath, "_is_transition", ("state.leader_epoch > partition", "state.leader_epoch != partition"))


def _epoch_start_unwritten(patch: Patch) -> None:
    patch.edit(Partition, "become_leader", ("self.log.assign_epoch(state.leader_epoch, start)", "pass"))


def _divergence_unseen(patch: Patch) -> None:
    patch.edit(Partition, "diverging_epoch", ("last_fetched_epoch == NO_LEADER_EPOCH", "True"))


def _divergence_by_offset(patch: Patch) -> None:
    patch.edit(Partition, "diverging_epoch", ("end.leader_epoch < last_fetched_epoch or", ""))
    patch.edit(follow_state, "truncation_point", ("leader.leader_epoch == NO_LEADER_EPOCH", "True"))


def _diverging_fetch_counts(patch: Patch) -> None:
    patch.edit(FetchPath, "_read", (" and fetched.diverging is None", ""))


def _below_start_unseen(patch: Patch) -> None:
    patch.edit(
        fetch, "_read_log", ("if offset < start:", "if False:"), ("if offset > end:", "if not start <= offset <= end:")
    )


# Consumers


def _consumers_read_on(patch: Patch) -> None:
    patch.edit(fetch, "_read_log", ("end if reading.params.from_follower else high_watermark", "end"))


def _end_goes_back(patch: Patch) -> None:
    patch.edit(OffsetQueries, "list_offset", ("not from_consumer or end >= partition.epoch_start", "True"))


def _begins_at_the_end(patch: Patch) -> None:
    patch.edit(OffsetQueries, "list_offset", ("partition.log_start_offset", "partition.log.high_watermark"))


def _session_keeps_epoch(patch: Patch) -> None:
    kept = (
        "self.wanted = type(wanted)(wanted.topic_partition, wanted.topic_id, wanted.fetch_offset, wanted.max_bytes, "
        "self.wanted.current_leader_epoch, wanted.last_fetched_epoch, wanted.log_start_offset)"
    )
    patch.edit(_Entry, "ask_again", ("self.wanted = wanted", kept))


DEFECTS: tuple[Defect, ...] = (
    Defect("acknowledge-early", "acks=all is answered once the leader has it", "own rule", _acknowledge_early),
    Defect(
        "acknowledge-deposed",
        "a produce whose time is over is acknowledged by the high watermark of a later epoch, led by somebody else",
        "KAFKA-9198",
        _acknowledge_deposed,
    ),
    Defect("append-deposed", "a producer's records are appended by who does not lead", "KIP-320", _append_deposed),
    Defect("min-insync-unchecked", "min.insync.replicas is 1, whatever is set", "KIP-966", _min_insync_unchecked),
    Defect("role-untold", "who waits is not told that the leader has changed", "KAFKA-9198", _role_untold),
    Defect("stop-untold", "who waits is not told that the replica was stopped", "KAFKA-9198, KAFKA-9235", _stop_untold),
    Defect(
        "watermark-below-min-insync",
        "the high watermark advances while fewer than min.insync.replicas are in sync",
        "KIP-966, KAFKA-15583",
        _watermark_below_min_insync,
    ),
    Defect(
        "watermark-over-unknown",
        "the high watermark does not wait for followers of which nothing is known yet in this epoch",
        "KIP-320",
        _watermark_over_unknown,
    ),
    Defect(
        "watermark-by-committed",
        "the high watermark does not wait for those who are on their way into the ISR",
        "KIP-497",
        _watermark_by_committed,
    ),
    Defect(
        "watermark-by-target",
        "the high watermark does not wait for those who are on their way out of the ISR",
        "KIP-497",
        _watermark_by_target,
    ),
    Defect(
        "watermark-alone",
        "while the assignment is taken there are no followers for a moment, and the high watermark is advanced",
        "KAFKA-10301",
        _watermark_alone,
    ),
    Defect(
        "remote-ends-kept",
        "a new epoch goes on with the followers' ends of the last",
        "TLA+ model Kip320",
        _remote_ends_kept,
    ),
    Defect(
        "join-below-epoch-start",
        "a follower joins the ISR with the records below the high watermark, but not those the epoch began with",
        "KAFKA-7128",
        _join_below_epoch_start,
    ),
    Defect(
        "broker-epoch-ignored",
        "fetches of an earlier incarnation of a follower count",
        "KIP-903, KAFKA-15221",
        _broker_epoch_ignored,
    ),
    Defect(
        "unconfirmed-follower-counts",
        "fetches of a follower count for an incarnation that nobody has confirmed",
        "own rule",
        _unconfirmed_follower_counts,
    ),
    Defect(
        "fetch-without-epoch", "fetches count whatever epoch they name", "KIP-320, KAFKA-7395", _fetch_without_epoch
    ),
    Defect(
        "epoch-start-unwritten",
        "a leader notes its epoch only with its first record",
        "KIP-279",
        _epoch_start_unwritten,
    ),
    Defect("divergence-unseen", "followers are never told where their logs differ", "KIP-101", _divergence_unseen),
    Defect(
        "divergence-by-offset",
        "leaders tell followers an offset only, and which epoch ends there is not looked at",
        "KIP-279",
        _divergence_by_offset,
    ),
    Defect("diverging-fetch-counts", "a fetch counts although its log differs", "KAFKA-13141", _diverging_fetch_counts),
    Defect(
        "below-start-unseen",
        "where logs differ is told before anybody looks whether the offset is below the log start",
        "KAFKA-12996",
        _below_start_unseen,
    ),
    Defect("consumers-read-on", "consumers read to the log end", "own rule", _consumers_read_on),
    Defect("end-goes-back", "a new leader tells its high watermark at once as the end", "KIP-207", _end_goes_back),
    Defect(
        "watermark-not-tried-again",
        "when an ISR change is written the high watermark is not looked at again",
        "KAFKA-13091",
        _watermark_not_tried_again,
    ),
    Defect(
        "session-keeps-epoch",
        "a fetch session keeps the leader epoch it began with",
        "KAFKA-9338",
        _session_keeps_epoch,
    ),
    Defect(
        "begins-at-the-end",
        "clients that ask for the earliest offset are told the high watermark",
        "KIP-107",
        _begins_at_the_end,
    ),
    Defect("join-while-leaving", "a broker that shuts down joins the ISR", "KIP-841", _join_while_leaving),
    Defect(
        "outcome-of-older-epoch",
        "the outcome of an ISR change is taken over whatever has replaced it",
        "KAFKA-12686, KAFKA-12751",
        _outcome_of_older_epoch,
    ),
)

UNSEEN: tuple[Defect, ...] = (
    Defect("stale-state-taken", "a LeaderAndIsr of a lower leader epoch is applied", "own rule", _stale_state_taken),
)
"""Planted, they are not found within 50 seeds: agent_defects says why."""
