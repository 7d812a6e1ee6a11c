"""Codecs of what brokers and controllers register: /brokers/ids/N, /controller, /controller_epoch, /cluster/id and
producer id blocks. Import them from `regency.model.znodes`.
"""

from __future__ import annotations

import re
from typing import Annotated
from uuid import UUID

import msgspec

from regency.model.errors import ZnodeMalformed
from regency.model.facts import PLAINTEXT, Broker, Endpoint, format_endpoint, parse_endpoint
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch, ProducerId
from regency.model.topic_ids import encode_uuid
from regency.model.znodes import paths as znode_paths
from regency.model.znodes.json import INT_MAX, LONG_MAX, Id, check_utf8, merge_fields, read_json

NO_LOSS = BrokerEpoch(0)
"""Where no registration of a broker came after a loss."""

_DECIMAL = re.compile(rb"0|[1-9][0-9]{0,18}")


class ProducerIdBlock(msgspec.Struct, frozen=True):
    """Producer ids `first` to `last`, both included, taken by `broker`."""

    broker: BrokerId
    first: ProducerId
    last: ProducerId


class _BrokerJson(msgspec.Struct):
    """Versions 1 to 5: 2 added endpoints, 3 rack, 4 listener_security_protocol_map, 5 features."""

    version: Annotated[int, msgspec.Meta(ge=1, le=INT_MAX)]
    host: str | None = None
    port: Annotated[int, msgspec.Meta(ge=-1, le=65535)] = -1
    endpoints: list[str] | None = None
    listener_security_protocol_map: dict[str, str] = {}
    rack: str | None = None


class _IncarnationJson(msgspec.Struct):
    """Version 1: whether the logs were whole, and else which registration came after a loss last."""

    whole: bool
    lost_epoch: Annotated[BrokerEpoch, msgspec.Meta(ge=0, le=LONG_MAX)] = NO_LOSS


class _ProcessJson(msgspec.Struct):
    """The process that registered. Records of older versions have neither field; damage here spoils no other field."""

    process: str
    since: Annotated[BrokerEpoch, msgspec.Meta(ge=0, le=LONG_MAX)] = NO_LOSS


class _ControllerJson(msgspec.Struct):
    """Versions 1 and 2; 2 added kraftControllerEpoch."""

    brokerid: Id


class _ClusterIdJson(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(min_length=1)]
    version: str | int = "1"


class _ProducerIdBlockJson(msgspec.Struct):
    broker: Id
    block_start: str
    block_end: str


_broker_decoder = msgspec.json.Decoder(_BrokerJson)
_incarnation_decoder = msgspec.json.Decoder(_IncarnationJson)
_process_decoder = msgspec.json.Decoder(_ProcessJson)
_controller_decoder = msgspec.json.Decoder(_ControllerJson)
_cluster_id_decoder = msgspec.json.Decoder(_ClusterIdJson)
_producer_ids_decoder = msgspec.json.Decoder(_ProducerIdBlockJson)


def encode_broker(broker: Broker, *, timestamp_ms: int, jmx_port: int = -1, previous: bytes | None = None) -> bytes:
    """Content of a registration, version 5. `timestamp_ms` is wall time; unknown fields of `previous` are kept.

    host and port repeat the first PLAINTEXT endpoint for clients that know version 1 only.
    """
    plain = next((end for end in broker.endpoints if end.security_protocol == PLAINTEXT), None)
    fields: dict[str, object] = {
        "version": 5,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "jmx_port": jmx_port,
        "timestamp": str(timestamp_ms),
        "endpoints": [format_endpoint(endpoint) for endpoint in broker.endpoints],
        "listener_security_protocol_map": {end.listener: end.security_protocol for end in broker.endpoints},
        "features": {},
    }
    if broker.rack is not None:
        fields["rack"] = broker.rack
    if previous:
        fields.pop("features")
        return merge_fields(znode_paths.broker(broker.id), fields, previous, dropped=("rack",))
    return msgspec.json.encode(fields)


def decode_broker(path: str, data: bytes, *, id: BrokerId, epoch: BrokerEpoch) -> Broker:  # noqa: A002
    """Read a registration of version 1 to 5, whose znode was created by transaction `epoch`. Raises ZnodeMalformed."""
    check_utf8(path, data)
    content = read_json(_broker_decoder, path, data)
    if content.endpoints is None:
        if not content.host or content.port < 1:
            raise ZnodeMalformed(path, f"neither endpoints nor host and port (host {content.host!r}, {content.port})")
        return Broker(id, epoch, (Endpoint(PLAINTEXT, content.host, content.port),), content.rack)
    protocols = {name.upper(): protocol for name, protocol in content.listener_security_protocol_map.items()}
    endpoints: list[Endpoint] = []
    for position, text in enumerate(content.endpoints):
        try:
            endpoint = parse_endpoint(text, protocols)
        except ValueError as error:
            raise ZnodeMalformed(path, f"endpoints[{position}]: {error}") from error
        if not endpoint.host or not endpoint.port:
            raise ZnodeMalformed(path, f"endpoints[{position}]: {text!r} lacks host or port")
        if any(endpoint.listener == known.listener for known in endpoints):
            raise ZnodeMalformed(path, f"endpoints[{position}]: listener {endpoint.listener} stands twice")
        endpoints.append(endpoint)
    if not endpoints:
        raise ZnodeMalformed(path, "endpoints: empty")
    return Broker(id, epoch, tuple(endpoints), content.rack)


def encode_incarnation(
    *, whole: bool, lost_epoch: BrokerEpoch, process: str = "", since: BrokerEpoch | None = None
) -> bytes:
    """Content of /brokers/incarnations/N. `whole`: nothing was lost since the registration before (see `decode`).

    `lost_epoch`: the last of the earlier registrations before which something may have been lost, or NO_LOSS.
    `process` tells processes of the broker apart; `since`: its first registration, None where that is this one.
    """
    fields = {"version": 1, "whole": whole, "lost_epoch": lost_epoch}
    return msgspec.json.encode({**fields, "process": process, "since": since or 0} if process else fields)


def decode_process(data: bytes, *, epoch: BrokerEpoch) -> tuple[str, BrokerEpoch | None]:
    """The process that wrote `data` with registration `epoch`, and its first registration; ("", None) if unsaid."""
    try:
        content = _process_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", None
    return content.process, min(content.since or epoch, epoch)


def decode_incarnation(data: bytes, *, epoch: BrokerEpoch) -> BrokerEpoch:
    """The broker's last registration before which it may have lost records it had written; NO_LOSS for none.

    `epoch` is the registration that wrote `data`. One that does not say counts as one after a loss: an older agent's.
    """
    try:
        content = _incarnation_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return epoch
    return min(content.lost_epoch, epoch) if content.whole else epoch


def encode_controller(broker: BrokerId, *, timestamp_ms: int) -> bytes:
    """Content of /controller, version 1. `timestamp_ms` is wall time."""
    return msgspec.json.encode({"version": 1, "brokerid": broker, "timestamp": str(timestamp_ms)})


def decode_controller(path: str, data: bytes) -> BrokerId:
    """The broker that rules, from /controller of version 1 or 2. Raises ZnodeMalformed."""
    return read_json(_controller_decoder, path, data).brokerid


def encode_controller_epoch(epoch: ControllerEpoch) -> bytes:
    """Content of /controller_epoch: a decimal number, no JSON."""
    return b"%d" % epoch


def decode_controller_epoch(path: str, data: bytes) -> ControllerEpoch:
    """Read /controller_epoch. Raises ZnodeMalformed."""
    if not _DECIMAL.fullmatch(data) or int(data) > INT_MAX:
        raise ZnodeMalformed(path, f"expected a decimal number of 0 to {INT_MAX}, got {data[:40]!r}")
    return ControllerEpoch(int(data))


def new_cluster_id(value: UUID) -> str:
    """Id of a new cluster, 22 characters, from a random uuid (the caller's: nothing here is random)."""
    return encode_uuid(value)


def encode_cluster_id(cluster_id: str) -> bytes:
    """Content of /cluster/id. Kafka writes this version as a text."""
    return msgspec.json.encode({"version": "1", "id": cluster_id})


def decode_cluster_id(path: str, data: bytes) -> str:
    """Read /cluster/id. Raises ZnodeMalformed."""
    return read_json(_cluster_id_decoder, path, data).id


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """Content of /latest_producer_id_block: the block that was taken last."""
    content = {"version": 1, "broker": block.broker, "block_start": str(block.first), "block_end": str(block.last)}
    return msgspec.json.encode(content)


def decode_producer_id_block(path: str, data: bytes) -> ProducerIdBlock | None:
    """Read /latest_producer_id_block; None where no block was ever taken (no data). Raises ZnodeMalformed."""
    if not data:
        return None
    content = read_json(_producer_ids_decoder, path, data)
    first = _long(path, "block_start", content.block_start)
    last = _long(path, "block_end", content.block_end)
    if last < first:
        raise ZnodeMalformed(path, f"block_end: {last} is below block_start {first}")
    return ProducerIdBlock(content.broker, ProducerId(first), ProducerId(last))


def _long(path: str, field: str, text: str) -> int:
    if not _DECIMAL.fullmatch(text.encode("utf-8")) or int(text) > LONG_MAX:
        raise ZnodeMalformed(path, f"{field}: expected a decimal number as text, got {text[:40]!r}")
    return int(text)
