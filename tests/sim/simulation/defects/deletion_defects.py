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
from simulation.defects.patching import Defect, Patch


def _nothing(*_: Any) -> None:
    """Instead of something."""


def _not_loaded(patch: Patch) -> None:
    patch.set(failover, "load_deletions", _nothing)


def _not_resumed(patch: Patch) -> None:
    patch.set(TopicDeletionManager, "brokers_started", _nothing)


def _marker_first(patch: Patch) -> None:
    remove = DeletionStore.remove_topics

    def without_markers(self: DeletionStore, topics: Mapping[str, int]) -> Removed:
        self.remove_markers(topics)
        return remove(self, topics)

    patch.set(DeletionStore, "remove_topics", without_markers)


def _answered_undone(patch: Patch) -> None:
    patch.edit(control.ControlPath, "_stop", ("hosting.logs.delete_async(name)", "pass"))


def _still_known(patch: Patch) -> None:
    """Whoever would tell: of a partition that goes it is told more than once."""
    append = RequestBatch._append_deltas

    def without_deleted(self: RequestBatch, channels: ControllerChannelManager, pool: RowPool) -> None:
        for partition in [each for each in self._metadata if self._context.is_being_deleted(each.topic)]:
            del self._metadata[partition]
        append(self, channels, pool)

    patch.set(RequestBatch, "topic_removed", _nothing)
    patch.set(RequestBatch, "_append_deltas", without_deleted)


def _nothing_late(patch: Patch) -> None:
    def indeterminate(send: Send) -> bool:
        return send.outcome is Outcome.INDETERMINATE

    patch.set(judge_parts, "_may_come_late", indeterminate)


DEFECTS = (
    Defect(
        "topic-deletions-not-loaded",
        "A new controller does not look which topics are to be deleted.",
        "Kafka 2.4",
        _not_loaded,
    ),
    Defect(
        "topic-deletions-not-resumed",
        "A broker that starts is not told what it has to delete.",
        "KAFKA-10548",
        _not_resumed,
    ),
    Defect("marker-removed-first", "The marker of a topic goes before the topic does.", "Kafka 2.4", _marker_first),
    Defect(
        "deletion-answered-undone", "A broker confirms a deletion and keeps the log.", "Kafka 2.4", _answered_undone
    ),
    Defect("deleted-topics-known", "Brokers are not told that a topic is gone.", "Kafka 2.4", _still_known),
    Defect(
        "nothing-comes-late",
        "The judge of histories takes it that of a send which is acknowledged nothing more can arrive.",
        "KIP-516",
        _nothing_late,
    ),
)
