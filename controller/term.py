"""A term: everything that belongs to one controller epoch. It is made when an election is won and dropped as a whole.

Nothing of it survives into the next term, so nothing decided in an old epoch can be written or sent in a new one.
"""

from __future__ import annotations

from collections.abc import Callable

from regency.controller.channel_manager import Channels
from regency.controller.cluster_store import ClusterStore
from regency.controller.config import ControllerConfig
from regency.controller.context import ControllerContext
from regency.controller.decisions import DecisionLog
from regency.controller.elector import Elector
from regency.controller.event_loop import EventQueue
from regency.controller.events import AgentTroubled, Event, SnapshotWanted
from regency.controller.partition_state_machine import PartitionStateMachine
from regency.controller.replica_state_machine import ReplicaStateMachine
from regency.controller.request_batch import RequestBatch
from regency.controller.sender import Trouble
from regency.controller.topic_watches import TopicWatches
from regency.history.writer import HistoryWriter
from regency.model.clock import Clock
from regency.model.ids import ControllerEpoch

MANY_WRITES = 1_000
"""From so many state znodes on, writing them takes longer than sending twice."""


class TermListener:
    """Hands what senders notice on to the queue, under the epoch they belong to."""

    def __init__(self, put: Callable[[Event], None], epoch: ControllerEpoch) -> None:
        self._put = put
        self._epoch = epoch

    def on_trouble(self, trouble: Trouble) -> None:
        """An agent's answer obliges the controller to look at something."""
        self._put(AgentTroubled(trouble, self._epoch))

    def on_snapshot_wanted(self) -> None:
        """A broker needs a metadata snapshot, and there is none."""
        self._put(SnapshotWanted())


class Term:
    """Context, state machines, senders and decisions of one controller epoch. The controller's thread alone uses it."""

    def __init__(
        self,
        config: ControllerConfig,
        store: ClusterStore,
        *,
        cluster_id: str,
        watches: TopicWatches,
        queue: EventQueue,
        elector: Elector,
        channels: Channels,
        history: HistoryWriter | None,
        clock: Clock,
    ) -> None:
        self.config = config
        self.store = store
        self.cluster_id = cluster_id
        self.watches = watches
        self.queue = queue
        self.elector = elector
        self.context = ControllerContext()
        self.batch = RequestBatch(self.context)
        self.decisions = DecisionLog(history, store.fence.epoch, config.broker_id, clock)
        self.partitions = PartitionStateMachine(
            self.context,
            store,
            self.batch,
            self.decisions,
            unclean_default=config.log_config.unclean_leader_election_enable,
        )
        self.replicas = ReplicaStateMachine(self.context, store, self.batch, self.decisions)
        self.channels = channels
        self._reported: set[str] = set()

    @property
    def epoch(self) -> ControllerEpoch:
        """The controller epoch."""
        return self.store.fence.epoch

    def hand_over(self) -> None:
        """Send what the event that ends now has committed, then record its decisions."""
        self.batch.hand_over(self.channels)
        self.decisions.commit()

    def hand_over_leaders(self, still_to_write: int) -> None:
        """Send what is committed already if much is still to be written: new leaders shall not wait for it."""
        if still_to_write >= MANY_WRITES:
            self.batch.hand_over(self.channels)

    def close(self) -> None:
        """End everything this term started, the senders first. What was not sent never will be."""
        self.channels.close()
        self.watches.disarm_all()

    def report_once(self, subject: str) -> bool:
        """Whether `subject` is reported for the first time in this term."""
        first = subject not in self._reported
        self._reported.add(subject)
        return first
