"""Kafka's requests and responses as bytes and back: frames, headers, bodies. The only importer of `kafka.protocol`.

A frame is a 4-byte length and that many bytes. `frame` below means those bytes without the length. Message objects are
kafka-python's (schema-driven, attributes in snake_case); encoding is its own, decoding is `decoder.py`. Headers are
read and written here, because kafka-python copies the whole message to read one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec
from kafka.protocol import api_message
from kafka.protocol.admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse

from regency.kafka.apis import FORWARDED, OFFERED, ApiKey, Message
from regency.kafka.decoder import (
    DECODING_ERRORS,
    FEW_ELEMENTS,
    MAX_ANSWER_ELEMENTS,
    MAX_ELEMENTS,
    Decoder,
    FrameMalformed,
    TooManyElements,
    UnsupportedApi,
    compile_decoder,
    skip_tags,
)
from regency.model.kafka_errors import ErrorCode

__all__ = [
    "AlterConfigsRequest",
    "AlterConfigsResponse",
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "AlterReplicaLogDirsRequest",
    "AlterReplicaLogDirsResponse",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeAclsRequest",
    "DescribeAclsResponse",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "FetchRequest",
    "FetchResponse",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "Message",
    "MetadataRequest",
    "MetadataResponse",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetDeleteRequest",
    "OffsetDeleteResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "ProduceRequest",
    "ProduceResponse",
    "Request",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "decode_body",
    "decode_response",
    "encode_body",
    "encode_request",
    "encode_response",
    "frame_response",
    "parse_forwarded",
    "parse_request",
]

PRODUCERS_TAG: Final = 10_000
"""Far above the tags that Kafka gives its own fields; a peer that does not know it passes over it (KIP-482)."""


class ListOffsetsResponse(api_message.ApiMessage):  # type: ignore[misc]
    """Kafka's, and what brokers tell each other besides: `ListedOffset.producers`."""

    @classmethod
    def json_patch(cls, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema with one more field of partitions."""
        topics = next(field for field in schema["fields"] if field["name"] == "Topics")
        partitions = next(field for field in topics["fields"] if field["name"] == "Partitions")
        partitions["fields"].append(
            {
                "name": "Producers",
                "type": "bytes",
                "versions": "6+",
                "tag": PRODUCERS_TAG,
                "taggedVersions": "6+",
                "nullableVersions": "6+",
                "default": "null",
            }
        )
        return schema


def _by_api(kind: str) -> dict[ApiKey, Any]:
    """The message classes of this module whose names end so, by the API they are of."""
    named = [each for name, each in globals().items() if name.endswith(kind)]
    return {ApiKey(each.API_KEY): each for each in named}


_REQUESTS: Final = _by_api("Request")
_RESPONSES: Final = _by_api("Response")
_REQUEST_HEADER: Final = struct.Struct(">hhih")


class Request(msgspec.Struct, frozen=True):
    """One request of a client. `client_id` is None where it gave none."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    message: Message
    is_large: bool = False
    """Whether it has more elements than take no time worth mentioning."""
    body: bytes | memoryview = b""
    """The message as it came, where it is to be forwarded."""


def parse_request(frame: bytes | bytearray | memoryview, most: int = MAX_ELEMENTS) -> Request:
    """Decode a request of an offered API and version; record sets in it are views into `frame`.

    Raises UnsupportedApi when the header is sound but what it asks for is not offered, TooManyElements where there are
    more than `most`, FrameMalformed for anything else. Try FEW_ELEMENTS before more: the request is large else.
    """
    data = memoryview(frame)
    try:
        number, version, correlation_id, client_length = _REQUEST_HEADER.unpack_from(data)
        api_key = _offered(number, version, correlation_id)
        position = _REQUEST_HEADER.size + max(client_length, 0)
        if client_length < -1 or position > len(data):
            raise FrameMalformed(f"The client id has length {client_length} in a request of {len(data)} bytes.")
        client_id = None if client_length < 0 else str(data[_REQUEST_HEADER.size : position], "utf-8")
        request_class = _REQUESTS[api_key]
        if request_class.flexible_version_q(version):
            position = skip_tags(data, position)
        message, _ = _decoder(request_class, version)(data, position, most)
    except TooManyElements as error:
        why = f"A {api_key.name} request has more than {most} elements: {error}"
        raise TooManyElements(why, hint="Ask in several requests.") from error
    except DECODING_ERRORS as error:
        raise FrameMalformed(f"A request of {len(data)} bytes cannot be decoded: {error}.") from error
    body = data[position:] if api_key in FORWARDED else b""
    return Request(api_key, version, correlation_id, client_id, message, most > FEW_ELEMENTS, body)


def parse_forwarded(number: int, version: int, client_id: str, body: bytes) -> Request:
    """The request whose `body` another broker sends. Raises UnsupportedApi, FrameMalformed."""
    api_key = _offered(number, version, 0)
    if api_key not in FORWARDED:
        raise UnsupportedApi(number, version, 0)
    try:
        message, _ = _decoder(_REQUESTS[api_key], version)(memoryview(body), 0, MAX_ELEMENTS)
    except DECODING_ERRORS as error:
        raise FrameMalformed(f"{len(body)} bytes of {api_key.name} cannot be decoded: {error}.") from error
    return Request(api_key, version, 0, client_id, message)


def encode_body(version: int, message: Message) -> bytearray:
    """A message without header and length: what may be kept and sent again under another correlation id."""
    body: bytearray = message.encode(version=version)
    return body


def frame_response(api_key: ApiKey, version: int, correlation_id: int, body: bytes | bytearray) -> bytearray:
    """The response, length and header included, ready to be written.

    The header of an ApiVersions response has no tags in any version, so that a client which does not know ours can
    read it (KIP-511).
    """
    flexible = api_key is not ApiKey.API_VERSIONS and _RESPONSES[api_key].flexible_version_q(version)
    return _framed(struct.pack(">i", correlation_id) + (b"\0" if flexible else b""), body)


def encode_response(api_key: ApiKey, version: int, correlation_id: int, message: Message) -> bytearray:
    """`encode_body` and `frame_response` in one."""
    return frame_response(api_key, version, correlation_id, encode_body(version, message))


def encode_request(version: int, correlation_id: int, client_id: str, message: Message) -> bytearray:
    """The request, length and header included, ready to be sent."""
    client = client_id.encode()
    header = _REQUEST_HEADER.pack(message.API_KEY, version, correlation_id, len(client)) + client
    flexible = message.flexible_version_q(version)
    return _framed(header + (b"\0" if flexible else b""), encode_body(version, message))


def decode_response(api_key: ApiKey, version: int, frame: bytes | bytearray | memoryview) -> tuple[int, Message]:
    """Correlation id and message of a response; record sets in it are views into `frame`. Raises FrameMalformed."""
    data = memoryview(frame)
    try:
        (correlation_id,) = struct.unpack_from(">i", data)
        position = 4
        if api_key is ApiKey.API_VERSIONS:
            refused = struct.unpack_from(">h", data, position)[0] == ErrorCode.UNSUPPORTED_VERSION
            version = 0 if refused else version
        elif _RESPONSES[api_key].flexible_version_q(version):
            position = skip_tags(data, position)
    except DECODING_ERRORS as error:
        raise _undecodable(api_key, data, error) from error
    return correlation_id, decode_body(api_key, version, data, position)


def decode_body(api_key: ApiKey, version: int, data: bytes | memoryview, position: int = 0) -> Message:
    """Message of a response whose header ends at `position`. Raises FrameMalformed."""
    try:
        return _decoder(_RESPONSES[api_key], version)(memoryview(data), position, MAX_ANSWER_ELEMENTS)[0]
    except DECODING_ERRORS as error:
        raise _undecodable(api_key, data, error) from error


def _undecodable(api_key: ApiKey, data: bytes | memoryview, error: Exception) -> FrameMalformed:
    return FrameMalformed(f"A {api_key.name} response of {len(data)} bytes cannot be decoded: {error}.")


def _offered(number: int, version: int, correlation_id: int) -> ApiKey:
    try:
        api_key = ApiKey(number)
    except ValueError:
        raise UnsupportedApi(number, version, correlation_id) from None
    if version not in OFFERED[api_key]:
        raise UnsupportedApi(number, version, correlation_id)
    return api_key


def _framed(header: bytes, body: bytes | bytearray) -> bytearray:
    frame = bytearray(struct.pack(">i", len(header) + len(body)) + header)
    frame += body
    return frame


@cache
def _decoder(message_class: Any, version: int) -> Decoder:
    return compile_decoder(message_class, version, flexible=message_class.flexible_version_q(version))


class FetchedRow(msgspec.Struct, kw_only=True):
    """PartitionData of a FetchResponse."""

    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes | memoryview
    aborted_transactions: Sequence[Message] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: Message = None
    current_leader: Message = None
    snapshot_id: None = None


class ProducedRow(msgspec.Struct, kw_only=True):
    """PartitionProduceResponse of a ProduceResponse."""

    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None
    record_errors: Sequence[Message] = ()


class LeaderRow(msgspec.Struct, kw_only=True):
    """MetadataResponsePartition of a MetadataResponse."""

    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    offline_replicas: Sequence[int]
