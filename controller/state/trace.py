"""Each transition of a partition or replica as a line of the log of state changes, in the words of Kafka's."""

from __future__ import annotations

from regency.controller.state.states import PartitionState, ReplicaState
from regency.model.facts import LeaderIsrAndControllerEpoch
from regency.model.ids import BrokerId, ControllerEpoch, TopicPartition
from regency.model.state_changes import STATE_CHANGES


class StateTrace:
    """Writes the lines of one controller epoch."""

    def __init__(self, controller: BrokerId, epoch: ControllerEpoch) -> None:
        self._who = f"[Controller id={controller} epoch={epoch}]"

    def partition(
        self,
        partition: TopicPartition,
        before: PartitionState,
        after: PartitionState,
        leadership: LeaderIsrAndControllerEpoch | None,
    ) -> None:
        """A partition has entered a state; `leadership` is that of now."""
        now = "none"
        if leadership is not None:
            held = leadership.leader_and_isr
            now = f"leader {held.leader}, leader epoch {held.leader_epoch}, isr {list(held.isr)}"
        STATE_CHANGES.debug(
            "%s Changed partition %s from %s to %s with state %s", self._who, partition, before.value, after.value, now
        )

    def replica(self, partition: TopicPartition, broker: BrokerId, before: ReplicaState, after: ReplicaState) -> None:
        """A replica has entered a state."""
        words = "%s Changed state of replica %d for partition %s from %s to %s"
        STATE_CHANGES.debug(words, self._who, broker, partition, before.value, after.value)
