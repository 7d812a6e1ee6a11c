from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from regency.kafka import codec
from regency.kafka.apis import OFFERED, ApiKey
from regency.kafka.codec import decode_response, encode_request, encode_response, parse_request
from regency.kafka.decoder import MAX_ELEMENTS, FrameMalformed, UnsupportedApi


def class_name(api: ApiKey) -> str:
    """Kafka's name of the messages."""
    return "".join(word.capitalize() for word in api.name.split("_"))


EVERY_VERSION = [
    pytest.param(api, version, id=f"{class_name(api)}-v{version}")
    for api, offered in OFFERED.items()
    for version in range(offered.lowest, offered.highest + 1)
]
Filled = Callable[[Any, int], Any]


def request_class(api: ApiKey) -> Any:
    return getattr(codec, class_name(api) + "Request")


def response_class(api: ApiKey) -> Any:
    return getattr(codec, class_name(api) + "Response")


def test_the_offered_versions_are_the_promised_ones() -> None:
    assert {api.value: (offered.lowest, offered.highest) for api, offered in OFFERED.items()} == {
        0: (3, 9),
        1: (4, 17),
        2: (1, 7),
        3: (1, 12),
        8: (2, 9),
        9: (1, 9),
        10: (0, 6),
        11: (0, 9),
        12: (0, 4),
        13: (0, 5),
        14: (0, 5),
        15: (0, 5),
        16: (0, 5),
        18: (0, 4),
        19: (2, 7),
        20: (1, 6),
        21: (0, 2),
        22: (0, 4),
        23: (2, 4),
        29: (1, 3),
        32: (1, 4),
        33: (0, 2),
        34: (0, 2),
        35: (0, 4),
        37: (0, 3),
        42: (0, 2),
        43: (0, 2),
        44: (0, 1),
        45: (0, 1),
        46: (0, 0),
        47: (0, 0),
        60: (0, 2),
        61: (0, 0),
    }


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_a_request_comes_back_as_it_was_sent(api: ApiKey, version: int, filled: Filled) -> None:
    message = filled(request_class(api), version)

    frame = encode_request(version, 77, "a client", message)
    request = parse_request(frame[4:])

    assert struct.unpack(">i", frame[:4]) == (len(frame) - 4,)
    assert (request.api_key, request.version, request.correlation_id) == (api, version, 77)
    assert request.client_id == "a client"
    assert request.message == message


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_a_response_comes_back_as_it_was_sent(api: ApiKey, version: int, filled: Filled) -> None:
    message = filled(response_class(api), version)

    frame = encode_response(api, version, 78, message)

    assert struct.unpack(">i", frame[:4]) == (len(frame) - 4,)
    assert decode_response(api, version, frame[4:]) == (78, message)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_our_bytes_are_those_of_kafka_pythons_client(api: ApiKey, version: int, filled: Filled) -> None:
    request = filled(request_class(api), version)
    response = filled(response_class(api), version)

    our_request, our_response = encode_request(version, 5, "x", request), encode_response(api, version, 5, response)

    request.with_header(correlation_id=5, client_id="x")
    response.with_header(correlation_id=5)
    assert our_request == request.encode(header=True, framed=True)
    assert our_response == response.encode(header=True, framed=True)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_null_stays_null_where_the_schema_allows_it(
    api: ApiKey, version: int, nulled: Callable[[Any, int], Iterator[Any]]
) -> None:
    for message in nulled(request_class(api), version):
        assert parse_request(encode_request(version, 1, "", message)[4:]).message == message


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_every_prefix_of_a_request_is_refused(api: ApiKey, version: int, filled: Filled) -> None:
    frame = bytes(encode_request(version, 1, "x", filled(request_class(api), version))[4:])

    for length in range(len(frame)):
        with pytest.raises(FrameMalformed):
            parse_request(frame[:length])


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_every_prefix_of_a_response_is_refused(api: ApiKey, version: int, filled: Filled) -> None:
    message = filled(response_class(api), version)
    frame = bytes(encode_response(api, version, 1, message)[4:])

    for length in range(len(frame)):
        with pytest.raises(FrameMalformed):
            decode_response(api, version, frame[:length])


@pytest.mark.parametrize(
    ("number", "version"), [(4, 0), (999, 0), (-1, 0), (3, 0), (3, 13), (0, 2), (0, 10), (1, 18), (60, 3)]
)
def test_what_is_not_offered_is_named_with_its_correlation_id(number: int, version: int) -> None:
    with pytest.raises(UnsupportedApi) as raised:
        parse_request(struct.pack(">hhih", number, version, 9, -1))

    assert (raised.value.api_key, raised.value.version, raised.value.correlation_id) == (number, version, 9)


def test_a_request_without_client_id_is_read() -> None:
    body = codec.MetadataRequest(version=4, topics=None).encode(version=4)

    assert parse_request(struct.pack(">hhih", 3, 4, 1, -1) + body).client_id is None


def test_bytes_after_the_message_are_ignored(filled: Filled) -> None:
    message = filled(codec.MetadataRequest, 9)

    assert parse_request(bytes(encode_request(9, 1, "x", message)[4:]) + b"more").message == message


def test_unknown_tags_of_newer_clients_are_skipped() -> None:
    name_and_version = b"\x02a\x02b"
    header = struct.pack(">hhih", 18, 3, 1, -1) + b"\x01\x05\x03abc"

    request = parse_request(header + name_and_version + b"\x02\x63\x02zz\x64\x00")

    assert (request.message.client_software_name, request.message.client_software_version) == ("a", "b")


@pytest.mark.parametrize(
    ("what", "version", "body"),
    [
        ("a forged array length", 4, struct.pack(">i", 0x7FFFFFFF)),
        ("a negative array length", 4, struct.pack(">i", -2)),
        ("a forged compact array length", 9, b"\xff\xff\xff\xff\x07"),
        ("a varint of six bytes", 9, b"\xff\xff\xff\xff\xff\x01" + bytes(20)),
        ("a varint that never ends", 9, b"\xff" * 1_000_000),
        ("a varint above 32 bits", 9, b"\xff\xff\xff\xff\x7f" + bytes(20)),
        ("a string that is not UTF-8", 4, struct.pack(">ih", 1, 2) + b"\xff\xfe\x01"),
        ("a null name", 4, struct.pack(">ih", 1, -1) + b"\x01"),
        ("a tag that is longer than the frame", 9, b"\x01\x01\x00\x00\x01\x00\x7f"),
    ],
)
def test_hostile_lengths_are_refused(what: str, version: int, body: bytes) -> None:
    header = struct.pack(">hhih", 3, version, 1, -1) + (b"\0" if version >= 9 else b"")

    with pytest.raises(FrameMalformed):
        parse_request(header + body)


def test_the_number_of_elements_in_a_message_is_bounded() -> None:
    empty_names = b"\0\0" * (MAX_ELEMENTS + 1)
    frame = struct.pack(">hhihi", 3, 1, 1, -1, MAX_ELEMENTS + 1) + empty_names

    with pytest.raises(FrameMalformed, match=f"{MAX_ELEMENTS + 1} elements"):
        parse_request(frame)


def test_an_answer_may_have_more_elements_than_a_request() -> None:
    """Metadata of all topics has ten per partition. Replicas and ISR of one partition stand for them here."""
    replicas = struct.pack(">i", MAX_ELEMENTS) + bytes(4 * MAX_ELEMENTS)
    partition = struct.pack(">hiii", 0, 0, 1, 1) + replicas + struct.pack(">ii", 0, 0)
    topic = struct.pack(">h", 0) + b"\0\1t" + b"\0" + struct.pack(">i", 1) + partition
    frame = struct.pack(">iiihii", 5, 0, 0, -1, 1, 1) + topic

    _, answer = decode_response(ApiKey.METADATA, 7, frame)

    assert len(answer.topics[0].partitions[0].replica_nodes) == MAX_ELEMENTS


def test_a_known_tag_must_have_the_length_it_claims() -> None:
    message = codec.FetchRequest(version=15, replica_state=codec.FetchRequest.ReplicaState(version=15, replica_id=1))
    frame = bytes(encode_request(15, 1, "x", message)[4:])

    with pytest.raises(FrameMalformed, match="Tagged field 1 claims"):
        parse_request(frame.replace(b"\x01\x01\x0d\0\0\0\x01", b"\x01\x01\x0c\0\0\0\x01"))


def test_records_are_views_into_the_frame(filled: Filled) -> None:
    frame = bytes(encode_request(9, 1, "x", filled(codec.ProduceRequest, 9))[4:])

    records = parse_request(frame).message.topic_data[0].partition_data[0].records

    assert isinstance(records, memoryview)
    assert records.obj is frame
