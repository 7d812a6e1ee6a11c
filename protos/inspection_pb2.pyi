from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadHistoryRequest(_message.Message):
    __slots__ = ("subjects", "topic", "since_ms", "until_ms", "after")
    SUBJECTS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    subjects: _containers.RepeatedScalarFieldContainer[str]
    topic: str
    since_ms: int
    until_ms: int
    after: HistoryPosition
    def __init__(self, subjects: _Optional[_Iterable[str]] = ..., topic: _Optional[str] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., after: _Optional[_Union[HistoryPosition, _Mapping]] = ...) -> None: ...

class HistoryPosition(_message.Message):
    __slots__ = ("role", "controller_epoch", "number")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    role: str
    controller_epoch: int
    number: int
    def __init__(self, role: _Optional[str] = ..., controller_epoch: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class ReadHistoryResponse(_message.Message):
    __slots__ = ("broker_id", "decisions", "next")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    decisions: _containers.RepeatedScalarFieldContainer[bytes]
    next: HistoryPosition
    def __init__(self, broker_id: _Optional[int] = ..., decisions: _Optional[_Iterable[bytes]] = ..., next: _Optional[_Union[HistoryPosition, _Mapping]] = ...) -> None: ...

class ExamineRequest(_message.Message):
    __slots__ = ("full", "confirm_ms")
    FULL_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_MS_FIELD_NUMBER: _ClassVar[int]
    full: bool
    confirm_ms: int
    def __init__(self, full: bool = ..., confirm_ms: _Optional[int] = ...) -> None: ...

class ExamineResponse(_message.Message):
    __slots__ = ("error_code", "message", "broker_id", "controller_epoch", "topics", "partitions", "offline_partitions", "brokers", "findings", "more_findings", "repairs")
    class RepairsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    MORE_FINDINGS_FIELD_NUMBER: _ClassVar[int]
    REPAIRS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    message: str
    broker_id: int
    controller_epoch: int
    topics: int
    partitions: int
    offline_partitions: int
    brokers: _containers.RepeatedCompositeFieldContainer[ExaminedBroker]
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    more_findings: int
    repairs: _containers.ScalarMap[str, int]
    def __init__(self, error_code: _Optional[int] = ..., message: _Optional[str] = ..., broker_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., topics: _Optional[int] = ..., partitions: _Optional[int] = ..., offline_partitions: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[ExaminedBroker, _Mapping]]] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., more_findings: _Optional[int] = ..., repairs: _Optional[_Mapping[str, int]] = ...) -> None: ...

class ExaminedBroker(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "report_age_ms", "hosted", "unacknowledged", "oldest_attempt_ms", "last_failure")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPORT_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    HOSTED_FIELD_NUMBER: _ClassVar[int]
    UNACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_ATTEMPT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    report_age_ms: int
    hosted: int
    unacknowledged: int
    oldest_attempt_ms: int
    last_failure: str
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., report_age_ms: _Optional[int] = ..., hosted: _Optional[int] = ..., unacknowledged: _Optional[int] = ..., oldest_attempt_ms: _Optional[int] = ..., last_failure: _Optional[str] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("kind", "subject", "where", "what", "advice")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    subject: str
    where: str
    what: str
    advice: str
    def __init__(self, kind: _Optional[str] = ..., subject: _Optional[str] = ..., where: _Optional[str] = ..., what: _Optional[str] = ..., advice: _Optional[str] = ...) -> None: ...

class SummariseRequest(_message.Message):
    __slots__ = ("worst", "decisions")
    WORST_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    worst: int
    decisions: int
    def __init__(self, worst: _Optional[int] = ..., decisions: _Optional[int] = ...) -> None: ...

class SummariseResponse(_message.Message):
    __slots__ = ("error_code", "message", "broker_id", "incumbent", "controller_epoch", "state", "queued", "in_contact", "ruling_since_ms", "failover_ms", "topics", "partitions", "uncounted_topics", "offline", "under_replicated", "under_min_isr", "reassigning", "deleting", "brokers", "worst", "decisions", "events")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCUMBENT_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    IN_CONTACT_FIELD_NUMBER: _ClassVar[int]
    RULING_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    UNCOUNTED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    UNDER_MIN_ISR_FIELD_NUMBER: _ClassVar[int]
    REASSIGNING_FIELD_NUMBER: _ClassVar[int]
    DELETING_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    WORST_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    message: str
    broker_id: int
    incumbent: int
    controller_epoch: int
    state: str
    queued: int
    in_contact: bool
    ruling_since_ms: int
    failover_ms: int
    topics: int
    partitions: int
    uncounted_topics: int
    offline: int
    under_replicated: int
    under_min_isr: int
    reassigning: int
    deleting: int
    brokers: _containers.RepeatedCompositeFieldContainer[SummarisedBroker]
    worst: _containers.RepeatedCompositeFieldContainer[PartitionTrouble]
    decisions: _containers.RepeatedScalarFieldContainer[bytes]
    events: _containers.RepeatedCompositeFieldContainer[ToldEvent]
    def __init__(self, error_code: _Optional[int] = ..., message: _Optional[str] = ..., broker_id: _Optional[int] = ..., incumbent: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., state: _Optional[str] = ..., queued: _Optional[int] = ..., in_contact: bool = ..., ruling_since_ms: _Optional[int] = ..., failover_ms: _Optional[int] = ..., topics: _Optional[int] = ..., partitions: _Optional[int] = ..., uncounted_topics: _Optional[int] = ..., offline: _Optional[int] = ..., under_replicated: _Optional[int] = ..., under_min_isr: _Optional[int] = ..., reassigning: _Optional[int] = ..., deleting: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[SummarisedBroker, _Mapping]]] = ..., worst: _Optional[_Iterable[_Union[PartitionTrouble, _Mapping]]] = ..., decisions: _Optional[_Iterable[bytes]] = ..., events: _Optional[_Iterable[_Union[ToldEvent, _Mapping]]] = ...) -> None: ...

class ToldEvent(_message.Message):
    __slots__ = ("time_ms", "number", "told")
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    time_ms: int
    number: int
    told: str
    def __init__(self, time_ms: _Optional[int] = ..., number: _Optional[int] = ..., told: _Optional[str] = ...) -> None: ...

class SummarisedBroker(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "shutting_down", "host", "port", "report_age_ms", "leads", "follows", "offline_replicas", "appended", "unacknowledged", "oldest_attempt_ms", "last_failure")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SHUTTING_DOWN_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    REPORT_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    UNACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_ATTEMPT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    shutting_down: bool
    host: str
    port: int
    report_age_ms: int
    leads: int
    follows: int
    offline_replicas: int
    appended: int
    unacknowledged: int
    oldest_attempt_ms: int
    last_failure: str
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., shutting_down: bool = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., report_age_ms: _Optional[int] = ..., leads: _Optional[int] = ..., follows: _Optional[int] = ..., offline_replicas: _Optional[int] = ..., appended: _Optional[int] = ..., unacknowledged: _Optional[int] = ..., oldest_attempt_ms: _Optional[int] = ..., last_failure: _Optional[str] = ...) -> None: ...

class PartitionTrouble(_message.Message):
    __slots__ = ("topic", "partition", "kind", "leader", "replicas", "isr", "reassigning")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    REASSIGNING_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    kind: str
    leader: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    reassigning: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., kind: _Optional[str] = ..., leader: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., reassigning: bool = ...) -> None: ...
