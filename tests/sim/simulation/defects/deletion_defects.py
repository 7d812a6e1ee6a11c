"""Defects of deletions: what is waited for, what goes first, who goes on, who is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regency.broker_agent.replication import control
from regency.controller import failover
from regency.controller.channel.channel_manager import ControllerChannelManager
from regency.controller.channel.request_batch import RequestBatch, RowPool
from regency.controller.machines.topic_deletion import TopicDeletionManager
from regency.controller.store.deletions import DeletionStore, Removed
from regency.judge import parts as judge_parts
from regency.judge.operations import Outcome, Send
from simulation.defects.patching import Defects, Patch

DEFECTS = Defects()


def _nothing(*_: Any) -> None:
    """Instead of something."""


@DEFECTS.of("Kafka 2.4")
def topic_deletions_not_loaded(patch: Patch) -> None:
    """A new controller does not look which topics are to be deleted."""
    patch.set(failover, "load_deletions", _nothing)


@DEFECTS.of("KAFKA-10548")
def topic_deletions_not_resumed(patch: Patch) -> None:
    """A broker that starts is not told what it has to delete."""
    patch.set(TopicDeletionManager, "brokers_started", _nothing)


@DEFECTS.of("Kafka 2.4")
def marker_removed_first(patch: Patch) -> None:
    """The marker of a topic goes before the topic does."""
    remove = DeletionStore.remove_topics

    def without_markers(self: DeletionStore, topics: Mapping[str, int]) -> Removed:
        self.remove_markers(topics)
        return remove(self, topics)

    patch.set(DeletionStore, "remove_topics", without_markers)


@DEFECTS.of("Kafka 2.4")
def deletion_answered_undone(patch: Patch) -> None:
    """A broker confirms a deletion and keeps the log."""
    patch.edit(control.ControlPath, "_stop", ("hosting.logs.delete_async(name)", "pass"))


@DEFECTS.of("Kafka 2.4")
def deleted_topics_known(patch: Patch) -> None:
    """Brokers are not told that a topic is gone."""
    append = RequestBatch._append_deltas

    def without_deleted(self: RequestBatch, channels: ControllerChannelManager, pool: RowPool) -> None:
        for partition in [each for each in self._metadata if self._context.is_being_deleted(each.topic)]:
            del self._metadata[partition]
        append(self, channels, pool)

    patch.set(RequestBatch, "topic_removed", _nothing)
    patch.set(RequestBatch, "_append_deltas", without_deleted)


@DEFECTS.of("KIP-516")
def nothing_comes_late(patch: Patch) -> None:
    """The judge of histories takes it that of a send which is acknowledged nothing more can arrive."""

    def indeterminate(send: Send) -> bool:
        return send.outcome is Outcome.INDETERMINATE

    patch.set(judge_parts, "_may_come_late", indeterminate)
