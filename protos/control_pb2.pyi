from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Header(_message.Message):
    __slots__ = ("controller_id", "controller_epoch", "broker_epoch", "seq", "controller_endpoint")
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    seq: int
    controller_endpoint: str
    def __init__(self, controller_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., seq: _Optional[int] = ..., controller_endpoint: _Optional[str] = ...) -> None: ...

class PartitionStates(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "leader", "leader_epoch", "zk_version", "controller_epoch", "isr_len", "isr", "replicas_len", "replicas", "adding_len", "adding", "removing_len", "removing", "is_new", "offline_len", "offline")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ZK_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_LEN_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_LEN_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_LEN_FIELD_NUMBER: _ClassVar[int]
    ADDING_FIELD_NUMBER: _ClassVar[int]
    REMOVING_LEN_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    IS_NEW_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_LEN_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: _containers.RepeatedScalarFieldContainer[int]
    leader: _containers.RepeatedScalarFieldContainer[int]
    leader_epoch: _containers.RepeatedScalarFieldContainer[int]
    zk_version: _containers.RepeatedScalarFieldContainer[int]
    controller_epoch: _containers.RepeatedScalarFieldContainer[int]
    isr_len: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    replicas_len: _containers.RepeatedScalarFieldContainer[int]
    replicas: _containers.RepeatedScalarFieldContainer[int]
    adding_len: _containers.RepeatedScalarFieldContainer[int]
    adding: _containers.RepeatedScalarFieldContainer[int]
    removing_len: _containers.RepeatedScalarFieldContainer[int]
    removing: _containers.RepeatedScalarFieldContainer[int]
    is_new: _containers.RepeatedScalarFieldContainer[bool]
    offline_len: _containers.RepeatedScalarFieldContainer[int]
    offline: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[_Iterable[int]] = ..., leader: _Optional[_Iterable[int]] = ..., leader_epoch: _Optional[_Iterable[int]] = ..., zk_version: _Optional[_Iterable[int]] = ..., controller_epoch: _Optional[_Iterable[int]] = ..., isr_len: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., replicas_len: _Optional[_Iterable[int]] = ..., replicas: _Optional[_Iterable[int]] = ..., adding_len: _Optional[_Iterable[int]] = ..., adding: _Optional[_Iterable[int]] = ..., removing_len: _Optional[_Iterable[int]] = ..., removing: _Optional[_Iterable[int]] = ..., is_new: _Optional[_Iterable[bool]] = ..., offline_len: _Optional[_Iterable[int]] = ..., offline: _Optional[_Iterable[int]] = ...) -> None: ...

class LeaderEndpoint(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "host", "port")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    host: str
    port: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class LeaderAndIsrRequest(_message.Message):
    __slots__ = ("header", "full", "last_chunk", "topics", "leaders")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    LAST_CHUNK_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    full: bool
    last_chunk: bool
    topics: _containers.RepeatedCompositeFieldContainer[PartitionStates]
    leaders: _containers.RepeatedCompositeFieldContainer[LeaderEndpoint]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., full: bool = ..., last_chunk: bool = ..., topics: _Optional[_Iterable[_Union[PartitionStates, _Mapping]]] = ..., leaders: _Optional[_Iterable[_Union[LeaderEndpoint, _Mapping]]] = ...) -> None: ...

class PartitionErrors(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "error_code", "leader_epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: _containers.RepeatedScalarFieldContainer[int]
    error_code: _containers.RepeatedScalarFieldContainer[int]
    leader_epoch: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[_Iterable[int]] = ..., error_code: _Optional[_Iterable[int]] = ..., leader_epoch: _Optional[_Iterable[int]] = ...) -> None: ...

class ControlResponse(_message.Message):
    __slots__ = ("error_code", "message", "broker_epoch", "controller_epoch", "topics")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    message: str
    broker_epoch: int
    controller_epoch: int
    topics: _containers.RepeatedCompositeFieldContainer[PartitionErrors]
    def __init__(self, error_code: _Optional[int] = ..., message: _Optional[str] = ..., broker_epoch: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[PartitionErrors, _Mapping]]] = ...) -> None: ...

class StopReplicaRequest(_message.Message):
    __slots__ = ("header", "topics")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    topics: _containers.RepeatedCompositeFieldContainer[StopPartitions]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[StopPartitions, _Mapping]]] = ...) -> None: ...

class StopPartitions(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "leader_epoch", "delete_partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DELETE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: _containers.RepeatedScalarFieldContainer[int]
    leader_epoch: _containers.RepeatedScalarFieldContainer[int]
    delete_partition: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[_Iterable[int]] = ..., leader_epoch: _Optional[_Iterable[int]] = ..., delete_partition: _Optional[_Iterable[bool]] = ...) -> None: ...

class BrokerMetadata(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "endpoints", "rack", "shutting_down")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    SHUTTING_DOWN_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    endpoints: _containers.RepeatedCompositeFieldContainer[BrokerEndpoint]
    rack: str
    shutting_down: bool
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[BrokerEndpoint, _Mapping]]] = ..., rack: _Optional[str] = ..., shutting_down: bool = ...) -> None: ...

class BrokerEndpoint(_message.Message):
    __slots__ = ("listener", "host", "port", "security_protocol")
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SECURITY_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    listener: str
    host: str
    port: int
    security_protocol: str
    def __init__(self, listener: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., security_protocol: _Optional[str] = ...) -> None: ...

class MetadataDelta(_message.Message):
    __slots__ = ("brokers_present", "live_brokers", "topics", "removed_topics")
    BROKERS_PRESENT_FIELD_NUMBER: _ClassVar[int]
    LIVE_BROKERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    brokers_present: bool
    live_brokers: _containers.RepeatedCompositeFieldContainer[BrokerMetadata]
    topics: _containers.RepeatedCompositeFieldContainer[PartitionStates]
    removed_topics: _containers.RepeatedCompositeFieldContainer[RemovedTopic]
    def __init__(self, brokers_present: bool = ..., live_brokers: _Optional[_Iterable[_Union[BrokerMetadata, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[PartitionStates, _Mapping]]] = ..., removed_topics: _Optional[_Iterable[_Union[RemovedTopic, _Mapping]]] = ...) -> None: ...

class RemovedTopic(_message.Message):
    __slots__ = ("topic", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class UpdateMetadataRequest(_message.Message):
    __slots__ = ("header", "snapshot", "first_chunk", "last_chunk", "first_delta", "deltas")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    FIRST_CHUNK_FIELD_NUMBER: _ClassVar[int]
    LAST_CHUNK_FIELD_NUMBER: _ClassVar[int]
    FIRST_DELTA_FIELD_NUMBER: _ClassVar[int]
    DELTAS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    snapshot: bool
    first_chunk: bool
    last_chunk: bool
    first_delta: int
    deltas: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., snapshot: bool = ..., first_chunk: bool = ..., last_chunk: bool = ..., first_delta: _Optional[int] = ..., deltas: _Optional[_Iterable[bytes]] = ...) -> None: ...

class DescribeReplicasRequest(_message.Message):
    __slots__ = ("header", "topics")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    topics: _containers.RepeatedCompositeFieldContainer[PartitionRefs]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[PartitionRefs, _Mapping]]] = ...) -> None: ...

class PartitionRefs(_message.Message):
    __slots__ = ("topic", "topic_id", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribeReplicasResponse(_message.Message):
    __slots__ = ("error_code", "message", "topics")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    message: str
    topics: _containers.RepeatedCompositeFieldContainer[ReplicaDescriptions]
    def __init__(self, error_code: _Optional[int] = ..., message: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[ReplicaDescriptions, _Mapping]]] = ...) -> None: ...

class ReplicaDescriptions(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "error_code", "leader_epoch", "last_batch_epoch", "log_start_offset", "log_end_offset", "high_watermark", "epochs_len", "epoch", "epoch_start")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_BATCH_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_LEN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EPOCH_START_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: _containers.RepeatedScalarFieldContainer[int]
    error_code: _containers.RepeatedScalarFieldContainer[int]
    leader_epoch: _containers.RepeatedScalarFieldContainer[int]
    last_batch_epoch: _containers.RepeatedScalarFieldContainer[int]
    log_start_offset: _containers.RepeatedScalarFieldContainer[int]
    log_end_offset: _containers.RepeatedScalarFieldContainer[int]
    high_watermark: _containers.RepeatedScalarFieldContainer[int]
    epochs_len: _containers.RepeatedScalarFieldContainer[int]
    epoch: _containers.RepeatedScalarFieldContainer[int]
    epoch_start: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[_Iterable[int]] = ..., error_code: _Optional[_Iterable[int]] = ..., leader_epoch: _Optional[_Iterable[int]] = ..., last_batch_epoch: _Optional[_Iterable[int]] = ..., log_start_offset: _Optional[_Iterable[int]] = ..., log_end_offset: _Optional[_Iterable[int]] = ..., high_watermark: _Optional[_Iterable[int]] = ..., epochs_len: _Optional[_Iterable[int]] = ..., epoch: _Optional[_Iterable[int]] = ..., epoch_start: _Optional[_Iterable[int]] = ...) -> None: ...

class ShutDownRequest(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: Header
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ...) -> None: ...
