"""Defects of followers: where they truncate, from where they fetch, what they take in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.replication import fetch
from regency.broker_agent.replication.fetcher.fetcher_logic import FetcherLogic
from regency.broker_agent.replication.fetcher.fetcher_pool import FetcherPool
from regency.broker_agent.replication.fetcher.follow_state import FollowState
from regency.broker_agent.replication.partition import Partition
from regency.kafka.fetching.values import FetchedPartition, FetchPartition, Plan, Reply
from regency.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition
from simulation.defects.patching import Defects, Patch

DEFECTS = Defects()


@DEFECTS.of("KIP-101, KAFKA-1211")
def truncate_to_watermark(patch: Patch) -> None:
    """a follower cuts its log to its high watermark before it asks its leader"""
    cut = "self.remotes = {}\n    self.log.truncate_to(self.log.high_watermark)"
    patch.edit(Partition, "become_follower", ("self.remotes = {}", cut))


@DEFECTS.of("KAFKA-13207")
def reply_after_removal(patch: Patch) -> None:
    """what a fetch brings is taken in although the partition is led here or followed elsewhere by now"""
    # Fetchers that have nothing left to follow are not ended, as nothing would be delivered then.
    gone: WeakKeyDictionary[FetcherLogic, dict[TopicPartition, Any]] = WeakKeyDictionary()
    remove: Callable[[FetcherLogic, TopicPartition], None] = FetcherLogic.remove
    on_reply: Callable[[FetcherLogic, Plan, Reply, int], None] = FetcherLogic.on_reply

    def removed(self: FetcherLogic, topic_partition: TopicPartition) -> None:
        state = self._states.get(topic_partition)
        if state is not None:
            gone.setdefault(self, {})[topic_partition] = state
        remove(self, topic_partition)

    def replied(self: FetcherLogic, plan: Plan, reply: Reply, now_ms: int) -> None:
        late = {name: state for name, state in gone.pop(self, {}).items() if name not in self._states}
        self._states.update(late)
        on_reply(self, plan, reply, now_ms)
        for name in late:
            self._states.pop(name, None)
            self._session.left(name)

    patch.set(FetcherPool, "stop_idle", lambda self: None)
    patch.set(FetcherLogic, "remove", removed)
    patch.set(FetcherLogic, "on_reply", replied)


@DEFECTS.of("KAFKA-14704")
def watermark_of_diverging(patch: Patch) -> None:
    """a follower takes the high watermark of an answer that says its log differs"""
    taken = "state.replica.log.set_high_watermark(fetched.high_watermark)\n            self._truncate("
    patch.edit(FetcherLogic, "_take_fetched", ("self._truncate(", taken))


@DEFECTS.of("KAFKA-13140")
def append_diverging(patch: Patch) -> None:
    """a follower appends what comes with the answer that its log differs"""
    answer = "return FetchedPartition(ErrorCode.NONE, high_watermark, start, diverging=diverging)"
    read = "log.read(offset, 1 << 20, max_offset=end, min_one_batch=True).records if offset < end else b''"
    patch.edit(
        fetch,
        "_read_log",
        (answer, f"return FetchedPartition(ErrorCode.NONE, high_watermark, start, {read}, diverging)"),
    )
    patch.edit(
        FetcherLogic, "_take_fetched", ("diverging is not None:", "diverging is not None and not fetched.records:")
    )


@DEFECTS.of("KAFKA-10371")
def offset_not_read_again(patch: Patch) -> None:
    """a follower that is told to follow again goes on from where its fetcher was"""
    # Where a fetcher was is remembered with the log, for as long as its process lives.
    offsets: WeakKeyDictionary[object, Offset] = WeakKeyDictionary()
    begin: Callable[[FollowState, Any, LeaderEpoch], None] = FollowState.__init__
    moved: Callable[[FetcherLogic, FollowState], None] = FetcherLogic._moved

    def began(self: FollowState, replica: Any, epoch: LeaderEpoch) -> None:
        begin(self, replica, epoch)
        self.offset = offsets.get(replica.log, self.offset)

    def went_on(self: FetcherLogic, state: FollowState) -> None:
        moved(self, state)
        replica: Any = state.replica
        offsets[replica.log] = state.offset

    patch.set(FollowState, "__init__", began)
    patch.set(FetcherLogic, "_moved", went_on)


@DEFECTS.of("own rule")
def watermark_above_end(patch: Patch) -> None:
    """a follower takes its leader's high watermark though its log ends below"""
    patch.edit(PartitionLog, "set_high_watermark", ("min(offset, self._log_end)", "offset"))


@DEFECTS.of("KAFKA-15510")
def epoch_lost_when_idle(patch: Patch) -> None:
    """a follower that was answered without records does not tell the epoch of its last ones any more"""
    # Which epoch its records have is not told by a fetcher that has got nothing since.
    idle: WeakKeyDictionary[FetcherLogic, dict[TopicPartition, FollowState]] = WeakKeyDictionary()
    append: Callable[[FetcherLogic, FollowState, FetchedPartition, int], None] = FetcherLogic._append
    entry: Callable[[FetcherLogic, FollowState], FetchPartition] = FetcherLogic._entry

    def appended(self: FetcherLogic, state: FollowState, fetched: FetchedPartition, now_ms: int) -> None:
        name = state.replica.topic_partition
        held = idle.setdefault(self, {})
        if fetched.records:
            held.pop(name, None)
        else:
            held[name] = state
        append(self, state, fetched, now_ms)

    def asked(self: FetcherLogic, state: FollowState) -> FetchPartition:
        wanted = entry(self, state)
        if idle.get(self, {}).get(wanted.topic_partition) is not state:
            return wanted
        return msgspec.structs.replace(wanted, last_fetched_epoch=NO_LEADER_EPOCH)

    patch.set(FetcherLogic, "_append", appended)
    patch.set(FetcherLogic, "_entry", asked)
