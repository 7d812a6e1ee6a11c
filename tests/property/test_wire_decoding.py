"""The codec against any bytes: it gives a request, or one of its two errors, and nothing else."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regency.broker_agent.listener.buffers import FrameReader
from regency.kafka import codec
from regency.kafka.apis import OFFERED, ApiKey
from regency.kafka.codec import Request, decode_response, encode_request, encode_response, parse_request
from regency.kafka.decoder import FrameMalformed, UnsupportedApi, read_uvarint

API_AND_VERSION = st.sampled_from(sorted(OFFERED)).flatmap(
    lambda api: st.tuples(st.just(api), st.integers(OFFERED[api].lowest, OFFERED[api].highest))
)
INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def field_values(field: Any, version: int) -> st.SearchStrategy[Any]:
    if field.is_array():
        values: st.SearchStrategy[Any] = st.lists(field_values(field.array_of, version), max_size=3)
    elif field.is_struct():
        return st.builds(
            lambda made: field.data_class(version=version, **made), st.fixed_dictionaries(fields_of(field, version))
        )
    elif field.type_str in INTEGERS:
        limit = 1 << INTEGERS[field.type_str]
        return st.integers(-limit, limit - 1)
    else:
        values = {
            "bool": st.booleans(),
            "string": st.text(max_size=20),
            "bytes": st.binary(max_size=40),
            "records": st.binary(max_size=40),
            "uuid": st.one_of(st.none(), st.uuids().filter(lambda made: made != UUID(int=0))),
            "bitfield": st.frozensets(st.integers(0, 30), max_size=4),
        }[field.type_str]
    return st.one_of(st.none(), values) if field.nullable_for_version_q(version) else values


def fields_of(message: Any, version: int) -> dict[str, st.SearchStrategy[Any]]:
    return {
        name: field_values(field, version) for name, field in message.fields.items() if field.for_version_q(version)
    }


@st.composite
def messages(draw: st.DrawFn, kind: str) -> tuple[ApiKey, int, Any]:
    """An API, a version of it, and a message of that version."""
    api, version = draw(API_AND_VERSION)
    message = getattr(codec, "".join(word.capitalize() for word in api.name.split("_")) + kind)
    return api, version, message(version=version, **draw(st.fixed_dictionaries(fields_of(message, version))))


def parse(frame: bytes) -> Request | None:
    try:
        return parse_request(frame)
    except (FrameMalformed, UnsupportedApi):
        return None


@given(messages("Request"), st.integers(-(2**31), 2**31 - 1), st.text(max_size=20))
def test_every_request_comes_back_as_it_was_sent(
    sent: tuple[ApiKey, int, Any], correlation_id: int, client_id: str
) -> None:
    api, version, message = sent

    parsed = parse_request(encode_request(version, correlation_id, client_id, message)[4:])

    assert (parsed.api_key, parsed.version, parsed.correlation_id, parsed.client_id) == (
        api,
        version,
        correlation_id,
        client_id,
    )
    assert parsed.message == message


@given(messages("Response"))
def test_every_response_comes_back_as_it_was_sent(sent: tuple[ApiKey, int, Any]) -> None:
    api, version, message = sent
    if api is ApiKey.API_VERSIONS and message.error_code == 35:
        message.error_code = 0

    assert decode_response(api, version, encode_response(api, version, 5, message)[4:]) == (5, message)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_refused(frame: bytes) -> None:
    parse(frame)


@given(API_AND_VERSION, st.binary(max_size=300))
def test_any_bytes_after_a_sound_header_are_a_request_or_refused(api: tuple[ApiKey, int], body: bytes) -> None:
    parse(struct.pack(">hhih", *api, 1, -1) + body)


@given(messages("Request"), st.data())
def test_a_request_with_changed_bytes_is_a_request_or_refused(
    sent: tuple[ApiKey, int, Any], data: st.DataObject
) -> None:
    _, version, message = sent
    frame = bytearray(encode_request(version, 1, "x", message)[4:])
    for position in data.draw(st.lists(st.integers(0, len(frame) - 1), min_size=1, max_size=4)):
        frame[position] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))

    parse(bytes(frame))


@given(messages("Request"), st.data())
def test_a_request_cut_short_is_refused(sent: tuple[ApiKey, int, Any], data: st.DataObject) -> None:
    _, version, message = sent
    frame = bytes(encode_request(version, 1, "x", message)[4:])

    with pytest.raises(FrameMalformed):
        parse_request(frame[: data.draw(st.integers(0, len(frame) - 1))])


@given(messages("Response"), st.data())
def test_a_response_with_changed_bytes_is_a_response_or_refused(
    sent: tuple[ApiKey, int, Any], data: st.DataObject
) -> None:
    api, version, message = sent
    frame = encode_response(api, version, 1, message)[4:]
    for position in data.draw(st.lists(st.integers(0, len(frame) - 1), min_size=1, max_size=4)):
        frame[position] = data.draw(st.integers(0, 255))

    try:
        decode_response(api, version, frame)
    except FrameMalformed:
        return


@given(st.integers(0, 2**32 - 1))
def test_varints_have_one_meaning(value: int) -> None:
    encoded = bytearray()
    rest = value
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)

    assert read_uvarint(memoryview(encoded), 0) == (value, len(encoded))


@given(st.lists(st.binary(max_size=50), max_size=10), st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_frames_are_the_same_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    reader = FrameReader(50)
    frames: list[bytes] = []
    while stream:
        length = cuts[len(stream) % len(cuts)]
        reader.feed(stream[:length])
        stream = stream[length:]
        while (frame := reader.next_frame()) is not None:
            frames.append(bytes(frame))

    assert frames == bodies
    assert not reader.is_inside_frame
