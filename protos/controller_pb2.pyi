from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReportReplicasRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "controller_epoch", "full", "changes", "digest", "number")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    controller_epoch: int
    full: bool
    changes: _containers.RepeatedCompositeFieldContainer[ReplicaReports]
    digest: int
    number: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., full: bool = ..., changes: _Optional[_Iterable[_Union[ReplicaReports, _Mapping]]] = ..., digest: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class ReplicaReports(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "leader_epoch", "zk_version", "high_watermark", "log_end_offset", "log_start_offset", "isr_len", "isr", "directory", "leader", "role", "damaged", "damage")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ZK_VERSION_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ISR_LEN_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    DAMAGE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: _containers.RepeatedScalarFieldContainer[int]
    leader_epoch: _containers.RepeatedScalarFieldContainer[int]
    zk_version: _containers.RepeatedScalarFieldContainer[int]
    high_watermark: _containers.RepeatedScalarFieldContainer[int]
    log_end_offset: _containers.RepeatedScalarFieldContainer[int]
    log_start_offset: _containers.RepeatedScalarFieldContainer[int]
    isr_len: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    directory: _containers.RepeatedScalarFieldContainer[str]
    leader: _containers.RepeatedScalarFieldContainer[int]
    role: _containers.RepeatedScalarFieldContainer[int]
    damaged: _containers.RepeatedScalarFieldContainer[int]
    damage: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[_Iterable[int]] = ..., leader_epoch: _Optional[_Iterable[int]] = ..., zk_version: _Optional[_Iterable[int]] = ..., high_watermark: _Optional[_Iterable[int]] = ..., log_end_offset: _Optional[_Iterable[int]] = ..., log_start_offset: _Optional[_Iterable[int]] = ..., isr_len: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., directory: _Optional[_Iterable[str]] = ..., leader: _Optional[_Iterable[int]] = ..., role: _Optional[_Iterable[int]] = ..., damaged: _Optional[_Iterable[int]] = ..., damage: _Optional[_Iterable[str]] = ...) -> None: ...

class ReportReplicasResponse(_message.Message):
    __slots__ = ("error_code", "message", "send_full")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SEND_FULL_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    message: str
    send_full: bool
    def __init__(self, error_code: _Optional[int] = ..., message: _Optional[str] = ..., send_full: bool = ...) -> None: ...

class ControlledShutdownRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class ControlledShutdownResponse(_message.Message):
    __slots__ = ("error_code", "message", "remaining_partitions")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REMAINING_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    message: str
    remaining_partitions: int
    def __init__(self, error_code: _Optional[int] = ..., message: _Optional[str] = ..., remaining_partitions: _Optional[int] = ...) -> None: ...

class DescribeControllerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeControllerResponse(_message.Message):
    __slots__ = ("broker_id", "active", "controller_epoch", "state", "live_brokers", "topics", "partitions", "offline_partitions", "unacknowledged", "session_id", "phases")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LIVE_BROKERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    UNACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    active: bool
    controller_epoch: int
    state: str
    live_brokers: int
    topics: int
    partitions: int
    offline_partitions: int
    unacknowledged: int
    session_id: int
    phases: _containers.RepeatedCompositeFieldContainer[FailoverPhase]
    def __init__(self, broker_id: _Optional[int] = ..., active: bool = ..., controller_epoch: _Optional[int] = ..., state: _Optional[str] = ..., live_brokers: _Optional[int] = ..., topics: _Optional[int] = ..., partitions: _Optional[int] = ..., offline_partitions: _Optional[int] = ..., unacknowledged: _Optional[int] = ..., session_id: _Optional[int] = ..., phases: _Optional[_Iterable[_Union[FailoverPhase, _Mapping]]] = ...) -> None: ...

class FailoverPhase(_message.Message):
    __slots__ = ("name", "seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    seconds: float
    def __init__(self, name: _Optional[str] = ..., seconds: _Optional[float] = ...) -> None: ...
