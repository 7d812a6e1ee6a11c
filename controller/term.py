"""A term: everything that belongs to one controller epoch. It is made when an election is won and dropped as a whole.

Nothing of it survives into the next term, so nothing decided in an old epoch can be written or sent in a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from regency.controller.channel.channels import Channels
from regency.controller.channel.log_questions import LogEnds
from regency.controller.channel.request_batch import RequestBatch
from regency.controller.channel.sender import Deleted, Trouble
from regency.controller.config import ControllerConfig
from regency.controller.event_loop import EventQueue
from regency.controller.events import AgentTroubled, Event, ReplicasDeleted, Request, SnapshotWanted
from regency.controller.machines.inquiries import Inquiries, InquiriesDue, LogEndsTold
from regency.controller.machines.partition_state_machine import PartitionStateMachine
from regency.controller.machines.replica_state_machine import ReplicaStateMachine
from regency.controller.machines.topic_deletion import TopicDeletionManager
from regency.controller.state.context import ControllerContext
from regency.controller.state.decisions import DecisionLog
from regency.controller.state.reports import ReplicaReports
from regency.controller.state.topic_copies import TopicCopies
from regency.controller.state.trace import StateTrace
from regency.controller.store.cluster_store import ClusterStore
from regency.controller.store.counters import Counters
from regency.controller.store.deletions import DeletionStore
from regency.controller.store.elector import Elector
from regency.controller.store.notification_ages import NotificationAges
from regency.controller.store.topic_watches import TopicWatches
from regency.history.writer import HistoryWriter
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.ids import ControllerEpoch
from regency.model.state_changes import traced

T = TypeVar("T")

MANY_WRITES = 1_000
"""From so many state znodes on, writing them takes longer than sending twice."""

REPORTED = 10_000
"""Subjects kept of those that were reported: topics come and go as long as a term lasts."""


class TermListener:
    """Hands what senders notice on to the queue, under the epoch they belong to."""

    def __init__(self, put: Callable[[Event], None], epoch: ControllerEpoch) -> None:
        self._put = put
        self._epoch = epoch

    def on_trouble(self, trouble: Trouble) -> None:
        """An agent's answer obliges the controller to look at something."""
        self._put(AgentTroubled(trouble, self._epoch))

    def on_deleted(self, deleted: Deleted) -> None:
        """A broker has confirmed deletions."""
        self._put(ReplicasDeleted(deleted, self._epoch))

    def on_log_ends(self, ends: LogEnds) -> None:
        """A broker has been asked how far its logs go: what it said, if anything."""
        self._put(LogEndsTold(ends, self._epoch))

    def on_snapshot_wanted(self) -> None:
        """A broker needs a metadata snapshot, and there is none."""
        self._put(SnapshotWanted())


class Term:
    """Context, state machines, senders and decisions of one controller epoch.

    The controller's thread alone uses it. Any other may ask for `copies`, `decisions.last`, `channels.backlogs`, and
    when it began in which epoch.
    """

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
        reports: ReplicaReports | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.reports = ReplicaReports() if reports is None else reports
        """What agents last said of what they host."""
        self.counters = Counters() if counters is None else counters
        """What this process counts, in this term and others."""
        self.config = config
        self.store = store
        self.cluster_id = cluster_id
        self.watches = watches
        self.queue = queue
        self.elector = elector
        self.context = ControllerContext()
        if traced():
            self.context.trace = StateTrace(config.broker_id, store.fence.epoch)
        self.copies = TopicCopies(self.context)
        """What others see of the context. They end with it: what another term knew is not counted."""
        self.batch = RequestBatch(self.context)
        self.decisions = DecisionLog(history, store.fence.epoch, config.broker_id, clock)
        self.partitions = PartitionStateMachine(
            self.context,
            store,
            self.batch,
            self.decisions,
            self.counters,
            unclean_default=config.log_config.unclean_leader_election_enable,
        )
        self.replicas = ReplicaStateMachine(self.context, store, self.batch, self.decisions)
        self.deletions = TopicDeletionManager(
            self.context,
            DeletionStore(store.access),
            self.batch,
            self.decisions,
            partitions=self.partitions,
            replicas=self.replicas,
            watches=watches,
        )
        self.channels = channels
        self.clock = clock
        self.began_ms = clock.wall_ms()
        """When the election was won; wall clock."""
        self.inquiries = Inquiries(
            self.context,
            self.partitions,
            ask=channels.ask_log_ends,
            wake_in=lambda delay_ms: queue.put_later(InquiriesDue(store.fence.epoch), delay_ms),
            clock=clock,
        )
        self.notifications = NotificationAges()
        self.asked_to_end = False
        """A client asked this controller to resign: the term ends when that is answered."""
        self._reported: dict[str, None] = {}
        self._deferred: dict[Request[Any], None] = {}
        self._answers: list[tuple[Request[Any], Any]] = []

    @property
    def epoch(self) -> ControllerEpoch:
        """The controller epoch."""
        return self.store.fence.epoch

    def hand_over(self) -> None:
        """Send what the event that ends now has committed, then record its decisions."""
        self.batch.hand_over(self.channels)
        self.inquiries.end_event()
        self.decisions.commit()
        self._give_answers()

    def hand_over_leaders(self, still_to_write: int) -> None:
        """Send what is committed already if much is still to be written: new leaders shall not wait for it."""
        if still_to_write >= MANY_WRITES:
            self.batch.hand_over(self.channels)

    def defer(self, request: Request[Any]) -> None:
        """It is answered in a later event, or refused when the term ends."""
        request.deferred = True
        self._deferred[request] = None

    def answer(self, request: Request[T], answer: T) -> None:
        """Answer a deferred request, as soon as what this event decided is handed over."""
        self._answers.append((request, answer))

    def close(self) -> None:
        """End everything this term started, the senders first. What was not sent never will be."""
        self.channels.close()
        self.watches.disarm_all()
        deferred, self._deferred = self._deferred, {}
        for request in deferred:
            request.refuse()

    def report_once(self, subject: str) -> bool:
        """Whether `subject` is reported for the first time in this term, or long after `REPORTED` others."""
        first = subject not in self._reported
        self._reported[subject] = None
        if len(self._reported) > REPORTED:
            del self._reported[next(iter(self._reported))]
        return first

    def _give_answers(self) -> None:
        answers, self._answers = self._answers, []
        if answers:
            crash_point("controller.term.before_answers")
        for request, answer in answers:
            self._deferred.pop(request, None)
            request.reply.set_result(answer)
