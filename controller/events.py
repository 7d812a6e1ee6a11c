"""What the controller's thread reacts to, and its queue: first in first out, and a caller that waits is answered.

Notifications carry no data, their handlers read again; equal ones that wait are one. Requests carry theirs and a reply
that is always given. What comes from a controller epoch names it, and is dropped when that is over. Events of one room
stand in it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Generic, TypeVar

from regency.controller.channel.sender import Deleted, Trouble
from regency.model.clock import Clock
from regency.model.errors import RegencyError
from regency.model.ids import ControllerEpoch

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ControllerState(Enum):
    """What the controller's thread does. Names and numbers are Kafka's gauge values."""

    IDLE = ("Idle", 0)
    CONTROLLER_CHANGE = ("ControllerChange", 1)
    BROKER_CHANGE = ("BrokerChange", 2)
    TOPIC_CHANGE = ("TopicChange", 3)
    TOPIC_DELETION = ("TopicDeletion", 4)
    ALTER_PARTITION_REASSIGNMENT = ("AlterPartitionReassignment", 5)
    AUTO_LEADER_BALANCE = ("AutoLeaderBalance", 6)
    MANUAL_LEADER_BALANCE = ("ManualLeaderBalance", 7)
    CONTROLLED_SHUTDOWN = ("ControlledShutdown", 8)
    ISR_CHANGE = ("IsrChange", 9)
    LEADER_AND_ISR_RESPONSE_RECEIVED = ("LeaderAndIsrResponseReceived", 10)
    LOG_DIR_CHANGE = ("LogDirChange", 11)
    CONTROLLER_SHUTDOWN = ("ControllerShutdown", 12)
    UNCLEAN_LEADER_ELECTION_ENABLE = ("UncleanLeaderElectionEnable", 13)
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = ("TopicUncleanLeaderElectionEnable", 14)
    LIST_PARTITION_REASSIGNMENT = ("ListPartitionReassignment", 15)
    UPDATE_METADATA_RESPONSE_RECEIVED = ("UpdateMetadataResponseReceived", 16)

    def __init__(self, label: str, gauge: int) -> None:
        self.label = label
        self.gauge = gauge


class NotController(RegencyError):
    """This controller does not rule, or stopped ruling before it came to the request: ask the one that does."""

    code = "not_controller"
    retriable = True


class Event:
    """One thing to react to."""

    __slots__ = ()
    state: ClassVar[ControllerState]
    cause: ClassVar[str]
    """What it is called where it is the reason of a decision: in the log and in the history."""
    coalesces: ClassVar[bool] = False
    """Whether an equal event that waits already makes this one superfluous."""

    def preempt(self) -> None:
        """It will not be processed: a caller that waits for an answer gets one now."""


@dataclass(eq=False)
class Request(Event, Generic[T]):
    """A request whose sender waits. Its answer is given once, whatever happens."""

    reply: Future[T] = field(default_factory=Future, init=False)
    deferred: bool = field(default=False, init=False)
    """The term it came to answers it, in a later event or at its end."""

    def preempt(self) -> None:
        """Answer NotController, unless it waits for a later event."""
        if not self.deferred:
            self.refuse()

    def refuse(self) -> None:
        """Answer NotController."""
        if not self.reply.done():
            self.reply.set_exception(NotController("This controller does not rule."))


class Notification(Event):
    """Says "look again". All of one kind are equal."""

    __slots__ = ()
    coalesces = True

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class ControllerChanged(Notification):
    """/controller or /controller_epoch changed, or a session began: rule, resign or race."""

    state = ControllerState.CONTROLLER_CHANGE
    cause = "controller_change"


class BrokersChanged(Notification):
    """/brokers/ids or something below it changed."""

    state = ControllerState.BROKER_CHANGE
    cause = "broker_change"


class TopicsChanged(Notification):
    """Children of /brokers/topics changed."""

    state = ControllerState.TOPIC_CHANGE
    cause = "topic_change"


class AssignmentsChanged(Notification):
    """Topic znodes changed: those marked in the queue."""

    state = ControllerState.TOPIC_CHANGE
    cause = "assignment_change"


class IsrsChanged(Notification):
    """ISR change notifications were written."""

    state = ControllerState.ISR_CHANGE
    cause = "isr_change"


class DeletionsAsked(Notification):
    """Children of /admin/delete_topics changed."""

    state = ControllerState.TOPIC_DELETION
    cause = "topic_deletion"


class ConfigsChanged(Notification):
    """Settings changed: an unclean election may be allowed now."""

    state = ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE
    cause = "config_change"


class SnapshotWanted(Notification):
    """A broker needs a metadata snapshot, and there is none."""

    state = ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED
    cause = "snapshot_wanted"


class SessionEnded(Event):
    """The session of this generation is lost: whatever it won is over."""

    state = ControllerState.CONTROLLER_CHANGE
    cause = "session_end"

    def __init__(self, generation: int) -> None:
        self.generation = generation


class ShutDown(Event):
    """The process ends: stop ruling, stop the loop."""

    state = ControllerState.CONTROLLER_SHUTDOWN
    cause = "shutdown"


class OfTerm(Event):
    """Belongs to one controller epoch, and is dropped when that is over."""

    __slots__ = ("epoch",)

    def __init__(self, epoch: ControllerEpoch) -> None:
        self.epoch = epoch


class AgentTroubled(OfTerm):
    """An agent's answer obliges the controller of that epoch to look at something."""

    state = ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED
    cause = "agent_answer"

    def __init__(self, trouble: Trouble, epoch: ControllerEpoch) -> None:
        super().__init__(epoch)
        self.trouble = trouble


class ReplicasDeleted(OfTerm):
    """A broker has confirmed to hold nothing any more of partitions it was to delete."""

    state = ControllerState.TOPIC_DELETION
    cause = "replicas_deleted"

    def __init__(self, deleted: Deleted, epoch: ControllerEpoch) -> None:
        super().__init__(epoch)
        self.deleted = deleted


class EventQueue:
    """Events in order of arrival, from any thread. Each is processed or preempted, exactly once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, Event]] = deque()
        """With the time since when they wait; monotonic, in milliseconds."""
        self._kinds: set[Event] = set()
        self._later: list[tuple[int, Event]] = []
        self._topics: set[str] = set()
        self._closed = False
        self.waited_ms = 0
        """How long the event that was taken last had waited; for who took it."""

    def __len__(self) -> int:
        with self._changed:
            return len(self._waiting)

    def put(self, event: Event) -> None:
        """Add an event. After `close` it is preempted at once."""
        with self._changed:
            if self._closed:
                event.preempt()
                return
            self._add(event, self._clock.monotonic_ms())

    def put_later(self, event: Event, delay_ms: int) -> None:
        """Add an event once `delay_ms` milliseconds are over; of equal ones that coalesce only the earliest stays."""
        with self._changed:
            due = self._clock.monotonic_ms() + delay_ms
            if event.coalesces:
                due = min([due, *(when for when, each in self._later if each == event)])
                self._later = [(when, each) for when, each in self._later if each != event]
            self._later.append((due, event))
            self._changed.notify()

    def preempt_all(self, event: Event) -> None:
        """Preempt everything that waits, then add `event`."""
        with self._changed:
            preempted = [event for _, event in self._waiting]
            self._waiting.clear()
            self._kinds.clear()
            self._later.clear()
            if not self._closed:
                self._add(event, self._clock.monotonic_ms())
        for each in preempted:
            each.preempt()

    def mark_topic(self, topic: str) -> None:
        """Note that a topic's znode must be read again; one event covers all that are marked."""
        with self._changed:
            if not self._closed:
                self._topics.add(topic)
                self._add(AssignmentsChanged(), self._clock.monotonic_ms())

    def take_marked_topics(self) -> list[str]:
        """The marked topics, sorted; the marks are gone."""
        with self._changed:
            marked, self._topics = sorted(self._topics), set()
            return marked

    def take(self) -> Event:
        """The next event; waits for one."""
        with self._changed:
            while True:
                event = self._next()
                if event is not None:
                    return event
                self._changed.wait(self._until_due_s())

    def poll(self) -> Event | None:
        """The next event if one waits or is due."""
        with self._changed:
            return self._next()

    def close(self) -> None:
        """Preempt everything that waits, and whatever is put from now on."""
        with self._changed:
            self._closed = True
        self.preempt_all(ShutDown())

    def _add(self, event: Event, since_ms: int) -> None:
        if event.coalesces:
            if event in self._kinds:
                return
            self._kinds.add(event)
        self._waiting.append((since_ms, event))
        self._changed.notify()

    def _next(self) -> Event | None:
        now = self._clock.monotonic_ms()
        due = [each for each in self._later if each[0] <= now]
        if due:
            self._later = [each for each in self._later if each[0] > now]
            for when, event in due:
                self._add(event, when)
        if not self._waiting:
            return None
        since, event = self._waiting.popleft()
        self.waited_ms = max(now - since, 0)
        self._kinds.discard(event)
        return event

    def _until_due_s(self) -> float | None:
        if not self._later:
            return None
        return max(min(when for when, _ in self._later) - self._clock.monotonic_ms(), 1) / 1000


class EventLoop:
    """Processes one event after the other on the thread that calls `run`."""

    def __init__(self, queue: EventQueue, process: Callable[[Event], None]) -> None:
        self._queue = queue
        self._process = process
        self.state = ControllerState.IDLE
        """What is being processed; read from other threads."""

    def run(self) -> None:
        """Process events until ShutDown was processed."""
        while True:
            event = self._queue.take()
            self.process(event)
            if isinstance(event, ShutDown):
                self._queue.close()
                return

    def process(self, event: Event) -> None:
        """Process one event. A caller that waits for its answer has one afterwards."""
        self.state = event.state
        try:
            self._process(event)
        finally:
            event.preempt()
            self.state = ControllerState.IDLE
