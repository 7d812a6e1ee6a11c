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
