"""A term: everything that belongs to one controller epoch. It is made when an election is won and dropped as a whole.

Nothing of it survives into the next term, so nothing decided in an old epoch can be written or sent in a new one.
"""

from __future__ import annotations

from typing import Any, TypeVar

from regency.controller.channel.channel_manager import ControllerChannelManager, NoSnapshot, Told
from regency.controller.channel.log_questions import LogEnds
from regency.controller.channel.request_batch import RequestBatch
from regency.controller.channel.sender import Deleted, Trouble
from regency.controller.events import (
    AgentTroubled,
    ControllerState,
    Event,
    EventQueue,
    IsrsChanged,
    ReplicasDeleted,
    Request,
    SnapshotWanted,
)
from regency.controller.machines.inquiries import Inquiries, InquiriesDue, LogEndsTold
from regency.controller.machines.partition_state_machine import PartitionStateMachine
from regency.controller.machines.replica_state_machine import ReplicaStateMachine
from regency.controller.machines.topic_deletion import TopicDeletionManager
from regency.controller.state.context import ControllerContext
from regency.controller.state.decisions import DecisionLog
from regency.controller.state.reports import ReplicaReports
from regency.controller.state.states import StateTrace
from regency.controller.state.topic_copies import TopicCopies
from regency.controller.store.access import Counters
from regency.controller.store.cluster_store import ClusterStore
from regency.controller.store.configs import NotificationAges
from regency.controller.store.deletions import DeletionStore
from regency.controller.store.elector import Elector
from regency.controller.store.topics import TopicWatches
from regency.history.files import HistoryWriter
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.ids import ControllerEpoch
from regency.model.settings import BrokerSettings
from regency.model.state_changes import traced

T = TypeVar("T")

MANY_WRITES = 1_000
"""From so many state znodes on, writing them takes longer than sending twice."""

REPORTED = 10_000
"""Subjects kept of those that were reported: topics come and go as long as a term lasts."""


def event_of(told: Told, epoch: ControllerEpoch) -> Event:
    """What a channel of this controller epoch tells, as an event."""
    match told:
        case Trouble():
            return AgentTroubled(told, epoch)
        case Deleted():
            return ReplicasDeleted(told, epoch)
        case LogEnds():
            return LogEndsTold(told, epoch)
        case NoSnapshot():
            return SnapshotWanted()


class Term:
    """Context, state machines, senders and decisions of one controller epoch.

    The controller's thread alone uses it. Any other may ask for `copies`, `decisions.last`, `channels.backlogs`, and
    when it began in which epoch.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: ClusterStore,
        *,
        cluster_id: str,
        watches: TopicWatches,
        queue: EventQueue,
        elector: Elector,
        channels: ControllerChannelManager,
        history: HistoryWriter | None,
        clock: Clock,
        endpoint: str = "",
        reports: ReplicaReports | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.reports = ReplicaReports() if reports is None else reports
        """What agents last said of what they host."""
        self.counters = Counters() if counters is None else counters
        """What this process counts, in this term and others."""
        self.settings = settings
        self.log_config = settings.log_config()
        """Defaults of topic settings."""
        self.endpoint = endpoint
        """host:port at which agents reach this controller."""
        self.store = store
        self.cluster_id = cluster_id
        self.watches = watches
        self.queue = queue
        self.elector = elector
        self.context = ControllerContext()
        if traced():
            self.context.trace = StateTrace(settings.broker_id, store.fence.epoch)
        self.copies = TopicCopies(self.context)
        """What others see of the context. They end with it: what another term knew is not counted."""
        self.batch = RequestBatch(self.context)
        self.decisions = DecisionLog(history, store.fence.epoch, settings.broker_id, clock)
        self.partitions = PartitionStateMachine(
            self.context,
            store,
            self.batch,
            self.decisions,
            self.counters,
            unclean_default=settings.unclean_leader_election_enable,
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
        self._judge_next()

    def _judge_next(self) -> None:
        """Let the ISRs that were read be judged soon: what tells of them may be lost."""
        if self.context.unjudged:
            self.queue.put(IsrsChanged())

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


LET_OTHERS_MS = 3_000
"""So long a resigned controller stays out of the race while other brokers live: their candidates have a watch."""


class Resign(Request[ControllerEpoch]):
    """Stop ruling. The answer, the epoch that ends, is given while it still lasts."""

    state = ControllerState.CONTROLLER_CHANGE
    cause = "resign_request"


def resign(term: Term, _: Resign) -> ControllerEpoch:
    """Let the term end once this is answered."""
    term.asked_to_end = True
    return term.epoch


def out_of_race_ms(term: Term) -> int:
    """How long to let others race alone: not at all where no other live broker could have a candidate."""
    others = [broker for broker in term.context.brokers if broker != term.settings.broker_id]
    return LET_OTHERS_MS if others else 0
