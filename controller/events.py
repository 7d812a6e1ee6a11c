"""The closed set of things the controller's thread reacts to.

Notifications carry no data, their handlers read again; equal ones that wait are one. Requests carry theirs and a reply
that is always given. What comes from a controller epoch names it, and is dropped when that is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from enum import Enum
from typing import ClassVar, Generic, TypeVar

import msgspec

from regency.controller.channel.sender import Deleted, Trouble
from regency.model.errors import RegencyError
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

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


class Request(Event, Generic[T]):
    """A request whose sender waits. Its answer is given once, whatever happens."""

    __slots__ = ("deferred", "reply")

    def __init__(self) -> None:
        self.reply: Future[T] = Future()
        self.deferred = False
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


class NewTopic(msgspec.Struct, frozen=True):
    """A topic that a client wants. -1 for the broker's default, or where `assignments` has it."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[BrokerId, ...]], ...] = ()
    """Partition numbers with their replicas, as they were given."""
    configs: Mapping[str, str] = {}


class CreatedTopic(msgspec.Struct, frozen=True):
    """What became of a NewTopic."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: TopicId | None = None
    num_partitions: int = -1
    replication_factor: int = -1


class CreateTopics(Request[tuple[CreatedTopic, ...]]):
    """Create topics; the answer comes when they are in ZooKeeper and their leaders are elected."""

    state = ControllerState.TOPIC_CHANGE
    cause = "create_topics"

    def __init__(self, topics: tuple[NewTopic, ...], *, validate_only: bool) -> None:
        super().__init__()
        self.topics = topics
        self.validate_only = validate_only


class ShutdownOutcome(msgspec.Struct, frozen=True):
    """What became of a controlled shutdown: refused, or which partitions the broker still leads."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    remaining: tuple[TopicPartition, ...] = ()


class ControlledShutdown(Request[ShutdownOutcome]):
    """A broker wants to leave: move what it leads."""

    state = ControllerState.CONTROLLED_SHUTDOWN
    cause = "controlled_shutdown"

    def __init__(self, broker: BrokerId, broker_epoch: BrokerEpoch) -> None:
        super().__init__()
        self.broker = broker
        self.broker_epoch = broker_epoch
