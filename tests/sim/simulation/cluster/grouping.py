"""Requests to the coordinators of groups: what the listener's handlers do with them, without Kafka's bytes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from regency.broker_agent.control.metadata_cache import MetadataCache
from regency.broker_agent.groups.api import Caller, JoinRequest, LeavingMember, SyncRequest
from regency.broker_agent.groups.coordinator import GroupCoordinator
from regency.broker_agent.listener.apis import coordinators
from regency.kafka.groups.records import OffsetAndMetadata
from regency.model.ids import NO_LEADER_EPOCH, BrokerId, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode
from simulation.judging.invariants import broken
from simulation.network import Respond

LISTENER = "PLAINTEXT"
WORDS = "x" * 5_000
"""More than offset.metadata.max.bytes."""


class CoordinatorAsked(NamedTuple):
    """FindCoordinator on its way."""

    group_id: str


class HeartbeatAsked(NamedTuple):
    """Heartbeat on its way."""

    group_id: str
    caller: Caller


class LeaveAsked(NamedTuple):
    """LeaveGroup on its way."""

    group_id: str
    members: tuple[LeavingMember, ...]


class CommitAsked(NamedTuple):
    """OffsetCommit on its way."""

    group_id: str
    caller: Caller
    offsets: dict[TopicPartition, Offset]
    wordy: frozenset[TopicPartition] = frozenset()
    """Partitions of which more metadata comes along than is allowed."""


class OffsetsOfGroupAsked(NamedTuple):
    """OffsetFetch on its way."""

    group_id: str
    partitions: tuple[TopicPartition, ...] | None
    require_stable: bool


class Found(NamedTuple):
    """Answer to FindCoordinator."""

    error: ErrorCode
    broker: BrokerId
    address: str


class Told(NamedTuple):
    """An answer of a coordinator, and whether it is that of whoever leads the partition of the group by then."""

    answer: Any
    rightful: bool
    is_loaded: bool
    """Whether what it has of the group is all there is."""


class DeleteGroupAsked(NamedTuple):
    """DeleteGroups on its way."""

    group_id: str


GroupAsked = (
    CoordinatorAsked
    | JoinRequest
    | SyncRequest
    | HeartbeatAsked
    | LeaveAsked
    | CommitAsked
    | OffsetsOfGroupAsked
    | DeleteGroupAsked
)


class GroupServer:
    """A broker's side, on its data loop. `is_rightful` says of a group whether ZooKeeper has this broker lead it."""

    def __init__(
        self,
        groups: GroupCoordinator,
        metadata: MetadataCache,
        broker: BrokerId,
        wall_ms: Callable[[], int],
        is_rightful: Callable[[str], bool],
    ) -> None:
        self.waiting: dict[int, GroupAsked] = {}
        """Requests that are not answered yet."""
        self._served = 0
        self._wall_ms = wall_ms
        self._is_rightful = is_rightful
        self._groups = groups
        auto_creation = SimpleNamespace(begin_offsets_topic=lambda _snapshot, _context: None)  # an administrator does
        self._services: Any = SimpleNamespace(
            metadata=metadata,
            groups=groups,
            settings=SimpleNamespace(broker_id=broker),
            auto_creation=auto_creation,
        )
        self._exchange: Any = SimpleNamespace(listener=LISTENER, context=None)

    def serve(self, request: GroupAsked, respond: Respond) -> None:
        """Answer now, or when what it waits for has happened."""
        if isinstance(request, CoordinatorAsked):
            respond(self._find(request.group_id))
            return
        groups, group_id = self._groups, request.group_id
        number = self._served = self._served + 1
        self.waiting[number] = request

        def tell(answer: Any) -> None:
            if self.waiting.pop(number, None) is None:
                raise broken("answered-once", f"{type(request).__name__} of {group_id} is answered a second time")
            led = groups._led.get(groups.partition_of(group_id) or 0)
            respond(Told(answer, self._is_rightful(group_id), led is not None and led.loaded))

        match request:
            case JoinRequest():
                groups.join(request, tell)
            case SyncRequest():
                groups.sync(request, tell)
            case HeartbeatAsked():
                groups.heartbeat(group_id, request.caller, tell)
            case LeaveAsked():
                groups.leave(group_id, request.members, lambda error, outcomes: tell((error, outcomes)))
            case CommitAsked():
                now_ms = self._wall_ms()
                offsets = {
                    each: OffsetAndMetadata(offset, NO_LEADER_EPOCH, WORDS if each in request.wordy else "", now_ms)
                    for each, offset in request.offsets.items()
                }
                groups.commit(group_id, request.caller, offsets, lambda results: tell(dict(results)))
            case OffsetsOfGroupAsked():
                tell(groups.fetch_offsets(group_id, request.partitions, require_stable=request.require_stable))
            case DeleteGroupAsked():
                groups.delete_group(group_id, tell)

    def _find(self, group_id: str) -> Found:
        found = coordinators._find_group(self._services, self._exchange, group_id)
        return Found(found.error, found.node, f"{found.host}:{found.port}")
