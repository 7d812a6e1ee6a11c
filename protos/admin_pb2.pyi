from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(_message.Message):
    __slots__ = ("error_code", "message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    message: str
    def __init__(self, error_code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class PartitionRefs(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[_Iterable[int]] = ...) -> None: ...

class PartitionOutcome(_message.Message):
    __slots__ = ("topic", "partition", "error_code", "message", "leader")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error_code: int
    message: str
    leader: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error_code: _Optional[int] = ..., message: _Optional[str] = ..., leader: _Optional[int] = ...) -> None: ...

class DeleteTopicsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicRef]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicRef, _Mapping]]] = ...) -> None: ...

class TopicRef(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class DeleteTopicsResponse(_message.Message):
    __slots__ = ("outcome", "topics")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    topics: _containers.RepeatedCompositeFieldContainer[DeletedTopic]
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[DeletedTopic, _Mapping]]] = ...) -> None: ...

class DeletedTopic(_message.Message):
    __slots__ = ("name", "topic_id", "error_code", "message")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    error_code: int
    message: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., error_code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class ListDeletionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDeletionsResponse(_message.Message):
    __slots__ = ("outcome", "deletions")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DELETIONS_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    deletions: _containers.RepeatedCompositeFieldContainer[Deletion]
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ..., deletions: _Optional[_Iterable[_Union[Deletion, _Mapping]]] = ...) -> None: ...

class Deletion(_message.Message):
    __slots__ = ("topic", "replicas", "deleted", "waits_for", "offline")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    replicas: int
    deleted: int
    waits_for: str
    offline: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., replicas: _Optional[int] = ..., deleted: _Optional[int] = ..., waits_for: _Optional[str] = ..., offline: _Optional[_Iterable[int]] = ...) -> None: ...

class CreatePartitionsRequest(_message.Message):
    __slots__ = ("topics", "validate_only")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[MorePartitions]
    validate_only: bool
    def __init__(self, topics: _Optional[_Iterable[_Union[MorePartitions, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class MorePartitions(_message.Message):
    __slots__ = ("topic", "count", "assignments")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    count: int
    assignments: _containers.RepeatedCompositeFieldContainer[ReplicaList]
    def __init__(self, topic: _Optional[str] = ..., count: _Optional[int] = ..., assignments: _Optional[_Iterable[_Union[ReplicaList, _Mapping]]] = ...) -> None: ...

class ReplicaList(_message.Message):
    __slots__ = ("replicas",)
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class TopicsResponse(_message.Message):
    __slots__ = ("outcome", "topics")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    topics: _containers.RepeatedCompositeFieldContainer[TopicOutcome]
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[TopicOutcome, _Mapping]]] = ...) -> None: ...

class TopicOutcome(_message.Message):
    __slots__ = ("topic", "error_code", "message")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    error_code: int
    message: str
    def __init__(self, topic: _Optional[str] = ..., error_code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class AlterConfigsRequest(_message.Message):
    __slots__ = ("resources", "incremental", "validate_only")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    INCREMENTAL_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[ConfigAlteration]
    incremental: bool
    validate_only: bool
    def __init__(self, resources: _Optional[_Iterable[_Union[ConfigAlteration, _Mapping]]] = ..., incremental: bool = ..., validate_only: bool = ...) -> None: ...

class ConfigAlteration(_message.Message):
    __slots__ = ("resource_type", "name", "changes")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    name: str
    changes: _containers.RepeatedCompositeFieldContainer[ConfigChange]
    def __init__(self, resource_type: _Optional[int] = ..., name: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[ConfigChange, _Mapping]]] = ...) -> None: ...

class ConfigChange(_message.Message):
    __slots__ = ("key", "operation", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    operation: int
    value: str
    def __init__(self, key: _Optional[str] = ..., operation: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...

class AlterConfigsResponse(_message.Message):
    __slots__ = ("outcome", "resources")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    resources: _containers.RepeatedCompositeFieldContainer[AlteredConfig]
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[AlteredConfig, _Mapping]]] = ...) -> None: ...

class AlteredConfig(_message.Message):
    __slots__ = ("resource_type", "name", "error_code", "message")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    name: str
    error_code: int
    message: str
    def __init__(self, resource_type: _Optional[int] = ..., name: _Optional[str] = ..., error_code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class ElectLeadersRequest(_message.Message):
    __slots__ = ("election_type", "all", "topics")
    ELECTION_TYPE_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    election_type: int
    all: bool
    topics: _containers.RepeatedCompositeFieldContainer[PartitionRefs]
    def __init__(self, election_type: _Optional[int] = ..., all: bool = ..., topics: _Optional[_Iterable[_Union[PartitionRefs, _Mapping]]] = ...) -> None: ...

class PartitionsResponse(_message.Message):
    __slots__ = ("outcome", "partitions")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionOutcome]
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[PartitionOutcome, _Mapping]]] = ...) -> None: ...

class AlterReassignmentsRequest(_message.Message):
    __slots__ = ("reassignments", "keep_replication_factor")
    REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    KEEP_REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    reassignments: _containers.RepeatedCompositeFieldContainer[Reassignment]
    keep_replication_factor: bool
    def __init__(self, reassignments: _Optional[_Iterable[_Union[Reassignment, _Mapping]]] = ..., keep_replication_factor: bool = ...) -> None: ...

class Reassignment(_message.Message):
    __slots__ = ("topic", "partition", "replicas", "cancel")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    cancel: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., cancel: bool = ...) -> None: ...

class ListReassignmentsRequest(_message.Message):
    __slots__ = ("all", "topics")
    ALL_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    all: bool
    topics: _containers.RepeatedCompositeFieldContainer[PartitionRefs]
    def __init__(self, all: bool = ..., topics: _Optional[_Iterable[_Union[PartitionRefs, _Mapping]]] = ...) -> None: ...

class ListReassignmentsResponse(_message.Message):
    __slots__ = ("outcome", "reassignments")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    reassignments: _containers.RepeatedCompositeFieldContainer[OngoingReassignment]
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ..., reassignments: _Optional[_Iterable[_Union[OngoingReassignment, _Mapping]]] = ...) -> None: ...

class OngoingReassignment(_message.Message):
    __slots__ = ("topic", "partition", "replicas", "adding", "removing")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    adding: _containers.RepeatedScalarFieldContainer[int]
    removing: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., adding: _Optional[_Iterable[int]] = ..., removing: _Optional[_Iterable[int]] = ...) -> None: ...

class ResignRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResignResponse(_message.Message):
    __slots__ = ("outcome", "controller_epoch")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    controller_epoch: int
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ..., controller_epoch: _Optional[int] = ...) -> None: ...

class ShutDownBrokerRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class ShutDownBrokerResponse(_message.Message):
    __slots__ = ("outcome", "broker_epoch")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    broker_epoch: int
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class ForgetBrokerRequest(_message.Message):
    __slots__ = ("broker_id",)
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    def __init__(self, broker_id: _Optional[int] = ...) -> None: ...

class ForgetBrokerResponse(_message.Message):
    __slots__ = ("outcome", "replicas")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    replicas: int
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ..., replicas: _Optional[int] = ...) -> None: ...
