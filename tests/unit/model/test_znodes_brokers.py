"""Registrations of brokers and controllers, cluster id and producer ids: every version Kafka ever wrote."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from regency.model.errors import ZnodeMalformed
from regency.model.facts import Broker, Endpoint
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch, ProducerId
from regency.model.znodes import (
    ProducerIdBlock,
    decode_broker,
    decode_cluster_id,
    decode_controller,
    decode_controller_epoch,
    decode_producer_id_block,
    encode_broker,
    encode_cluster_id,
    encode_controller,
    encode_controller_epoch,
    encode_producer_id_block,
    new_cluster_id,
)

ID, EPOCH = BrokerId(1), BrokerEpoch(99)
PLAIN = Endpoint("PLAINTEXT", "h1", 9092)


def broker(data: bytes) -> Broker:
    return decode_broker("/brokers/ids/1", data, id=ID, epoch=EPOCH)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"version":1,"host":"h1","port":9092,"jmx_port":-1,"timestamp":"1"}', Broker(ID, EPOCH, (PLAIN,))),
        (
            b'{"version":2,"host":"h1","port":9092,"jmx_port":-1,"timestamp":"1","endpoints":["PLAINTEXT://h1:9092"]}',
            Broker(ID, EPOCH, (PLAIN,)),
        ),
        (
            b'{"version":3,"host":"h1","port":9092,"endpoints":["PLAINTEXT://h1:9092","SSL://h1:9093"],"rack":"dc1"}',
            Broker(ID, EPOCH, (PLAIN, Endpoint("SSL", "h1", 9093, "SSL")), "dc1"),
        ),
        (
            (
                b'{"listener_security_protocol_map":{"inner":"PLAINTEXT","OUTER":"SSL"},"endpoints":["INNER://h1:9092",'
                b'"OUTER://[::1]:9093"],"jmx_port":9999,"host":null,"timestamp":"1718000000000","port":-1,"version":4}'
            ),
            Broker(ID, EPOCH, (Endpoint("INNER", "h1", 9092), Endpoint("OUTER", "::1", 9093, "SSL"))),
        ),
        (
            (
                b'{"features":{"f":{"min_version":1,"max_version":3}},"listener_security_protocol_map":{"PLAINTEXT":'
                b'"PLAINTEXT"},"endpoints":["PLAINTEXT://h1:9092"],"jmx_port":-1,"port":9092,"host":"h1","version":5,'
                b'"timestamp":"1718000000000"}'
            ),
            Broker(ID, EPOCH, (PLAIN,)),
        ),
    ],
    ids=["v1", "v2", "v3", "v4", "v5"],
)
def test_every_version_of_a_registration_is_read(data: bytes, expected: Broker) -> None:
    assert broker(data) == expected


def test_a_registration_is_written_as_version_5_with_the_first_plaintext_listener_for_old_clients() -> None:
    written = encode_broker(
        Broker(ID, EPOCH, (Endpoint("TLS", "h1", 9093, "SSL"), PLAIN, Endpoint("CONTROL", "::1", 5)), "dc1"),
        timestamp_ms=1718000000000,
    )
    assert json.loads(written) == {
        "version": 5,
        "host": "h1",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "1718000000000",
        "endpoints": ["TLS://h1:9093", "PLAINTEXT://h1:9092", "CONTROL://[::1]:5"],
        "listener_security_protocol_map": {"TLS": "SSL", "PLAINTEXT": "PLAINTEXT", "CONTROL": "PLAINTEXT"},
        "features": {},
        "rack": "dc1",
    }


def test_a_registration_without_plaintext_has_no_host_for_old_clients() -> None:
    content = json.loads(encode_broker(Broker(ID, EPOCH, (Endpoint("TLS", "h", 1, "SSL"),)), timestamp_ms=1))
    assert (content["host"], content["port"]) == (None, -1)
    assert "rack" not in content


def test_writing_a_registration_again_keeps_fields_of_others_but_not_an_old_rack() -> None:
    previous = b'{"version":5,"rack":"old","features":{"f":{"min_version":1,"max_version":3}},"tags":["a"]}'
    content = json.loads(encode_broker(Broker(ID, EPOCH, (PLAIN,)), timestamp_ms=1, previous=previous))
    assert content["tags"] == ["a"]
    assert content["features"] == {"f": {"min_version": 1, "max_version": 3}}
    assert "rack" not in content


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{}", "version"),
        (b'{"version":0}', "$.version"),
        (b'{"version":1}', "neither endpoints nor host and port"),
        (b'{"version":1,"host":"h","port":70000}', "$.port"),
        (b'{"version":2,"endpoints":[]}', "endpoints: empty"),
        (b'{"version":2,"endpoints":["h:9"]}', "endpoints[0]: 'h:9' is not LISTENER://host:port"),
        (b'{"version":2,"endpoints":["A://h:1","A://h:2"]}', "endpoints[1]: listener A stands twice"),
        (b'{"version":2,"endpoints":["A://:1"]}', "endpoints[0]: 'A://:1' lacks host or port"),
        (b'{"version":2,"endpoints":["A://h:99999"]}', "endpoints[0]: "),
        (b'{"version":2,"endpoints":[1]}', "$.endpoints[0]"),
        (b'{"version":2,"endpoints":["A://h:1"],"rack":1}', "$.rack"),
    ],
)
def test_a_malformed_registration_names_path_and_field(data: bytes, reason: str) -> None:
    with pytest.raises(ZnodeMalformed) as caught:
        broker(data)
    assert caught.value.path == "/brokers/ids/1"
    assert reason in caught.value.reason


def test_a_controller_is_written_as_version_1_and_read_as_1_and_2() -> None:
    data = encode_controller(BrokerId(3), timestamp_ms=1718000000000)
    assert data == b'{"version":1,"brokerid":3,"timestamp":"1718000000000"}'
    assert decode_controller("/controller", data) == 3
    version_2 = b'{"version":2,"brokerid":0,"timestamp":"1718000000000","kraftControllerEpoch":-1}'
    assert decode_controller("/controller", version_2) == 0
    with pytest.raises(ZnodeMalformed, match=r"/controller: .*brokerid"):
        decode_controller("/controller", b'{"version":1,"brokerid":-1}')


def test_a_controller_epoch_is_a_decimal_number_without_json() -> None:
    assert encode_controller_epoch(ControllerEpoch(17)) == b"17"
    assert decode_controller_epoch("/controller_epoch", b"17") == 17


@pytest.mark.parametrize("data", [b"", b"-1", b"01", b" 1", b"1\n", b"2147483648", b"9" * 10_000, "²".encode(), b"1.0"])
def test_anything_else_is_no_controller_epoch(data: bytes) -> None:
    with pytest.raises(ZnodeMalformed, match="/controller_epoch: expected a decimal number"):
        decode_controller_epoch("/controller_epoch", data)


def test_a_cluster_id_is_22_characters_of_a_uuid_under_a_version_that_is_text() -> None:
    cluster_id = new_cluster_id(UUID("99985381-8c0e-48a9-a167-597588d90e2d"))
    assert cluster_id == "mZhTgYwOSKmhZ1l1iNkOLQ"
    data = encode_cluster_id(cluster_id)
    assert data == b'{"version":"1","id":"mZhTgYwOSKmhZ1l1iNkOLQ"}'
    assert decode_cluster_id("/cluster/id", data) == cluster_id
    with pytest.raises(ZnodeMalformed, match=r"/cluster/id: .*\$\.id"):
        decode_cluster_id("/cluster/id", b'{"version":"1","id":""}')


def test_a_block_of_producer_ids_has_its_ends_as_text() -> None:
    block = ProducerIdBlock(BrokerId(1), ProducerId(0), ProducerId(999))
    data = encode_producer_id_block(block)
    assert data == b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    assert decode_producer_id_block("/p", data) == block
    assert decode_producer_id_block("/p", b"") is None


@pytest.mark.parametrize(
    ("start", "end", "field"), [("x", "9", "block_start"), ("0", "9" * 30, "block_end"), ("5", "4", "block_end")]
)
def test_a_malformed_block_of_producer_ids_names_the_field(start: str, end: str, field: str) -> None:
    data = json.dumps({"version": 1, "broker": 1, "block_start": start, "block_end": end}).encode()
    with pytest.raises(ZnodeMalformed, match=f"/p: {field}: "):
        decode_producer_id_block("/p", data)
