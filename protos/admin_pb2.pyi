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

class Envelope(_message.Message):
    __slots__ = ("api_key", "api_version", "request", "principal_type", "principal_name", "listener", "client_address", "client_id")
    API_KEY_FIELD_NUMBER: _ClassVar[int]
    API_VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_NAME_FIELD_NUMBER: _ClassVar[int]
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    api_key: int
    api_version: int
    request: bytes
    principal_type: str
    principal_name: str
    listener: str
    client_address: str
    client_id: str
    def __init__(self, api_key: _Optional[int] = ..., api_version: _Optional[int] = ..., request: _Optional[bytes] = ..., principal_type: _Optional[str] = ..., principal_name: _Optional[str] = ..., listener: _Optional[str] = ..., client_address: _Optional[str] = ..., client_id: _Optional[str] = ...) -> None: ...

class EnvelopeReply(_message.Message):
    __slots__ = ("outcome", "response", "awaited")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    response: bytes
    awaited: _containers.RepeatedCompositeFieldContainer[Awaited]
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ..., response: _Optional[bytes] = ..., awaited: _Optional[_Iterable[_Union[Awaited, _Mapping]]] = ...) -> None: ...

class Awaited(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "leader")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: _containers.RepeatedScalarFieldContainer[int]
    leader: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[_Iterable[int]] = ..., leader: _Optional[_Iterable[int]] = ...) -> None: ...

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
