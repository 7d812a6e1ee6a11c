"""Codecs of /brokers/topics/T (assignment) and of its partitions' state. Import them from `regency.model.znodes`.

The state codec is called for every partition of a cluster at a failover, up to two million: it does no work twice.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from regency.model.errors import ZnodeMalformed
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicAssignment
from regency.model.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicId, ZkVersion
from regency.model.topic_ids import decode_topic_id, encode_topic_id
from regency.model.znodes import paths as znode_paths
from regency.model.znodes.json import (
    INT_MAX,
    Id,
    IdOrNone,
    Natural,
    check_distinct,
    check_utf8,
    merge_fields,
    read_json,
)

_Replicas = dict[Natural, tuple[Id, ...]]


class _TopicJson(msgspec.Struct):
    """Versions 1 to 3: 2 added adding_replicas and removing_replicas (KIP-455), 3 topic_id (KIP-516).

    deleting_replicas is ours, which Kafka's readers skip: former replicas whose logs may still be there.
    """

    partitions: _Replicas
    adding_replicas: _Replicas = {}
    removing_replicas: _Replicas = {}
    deleting_replicas: _Replicas = {}
    topic_id: str | None = None


class _StateJson(msgspec.Struct, gc=False):
    """What is read of a state. leader_recovery_state (KIP-704) may stand there and means nothing here."""

    controller_epoch: Annotated[ControllerEpoch, msgspec.Meta(ge=0, le=INT_MAX)]
    leader: IdOrNone
    leader_epoch: Annotated[LeaderEpoch, msgspec.Meta(ge=0, le=INT_MAX)]
    isr: tuple[Id, ...]


class _StateJsonV1(msgspec.Struct, gc=False):
    """What is written, in this order."""

    controller_epoch: ControllerEpoch
    leader: BrokerId
    version: int
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]


_topic_decoder = msgspec.json.Decoder(_TopicJson)
_state_decoder = msgspec.json.Decoder(_StateJson)
_encode = msgspec.json.Encoder().encode


def encode_topic(assignment: TopicAssignment, *, previous: bytes | None = None) -> bytes:
    """Content of a topic znode, version 3, partitions in order; unknown fields of `previous` are kept.

    Raises ZnodeMalformed where `previous` is no JSON object.
    """
    partitions = sorted(assignment.partitions.items())
    fields: dict[str, object] = {"version": 3}
    if assignment.topic_id is not None:
        fields["topic_id"] = encode_topic_id(assignment.topic_id)
    fields["partitions"] = {str(number): replicas.replicas for number, replicas in partitions}
    fields["adding_replicas"] = {str(number): replicas.adding for number, replicas in partitions if replicas.adding}
    fields["removing_replicas"] = {
        str(number): replicas.removing for number, replicas in partitions if replicas.removing
    }
    deleting = {str(number): replicas.deleting for number, replicas in partitions if replicas.deleting}
    if deleting:
        fields["deleting_replicas"] = deleting
    dropped = ("topic_id", "deleting_replicas")
    return merge_fields(znode_paths.topic(assignment.topic), fields, previous, dropped=dropped)


def decode_topic(path: str, data: bytes, *, topic: str, zk_version: ZkVersion, czxid: int) -> TopicAssignment:
    """Read a topic znode of version 1, 2 or 3; no data is no partitions. Raises ZnodeMalformed."""
    if not data:
        return TopicAssignment(topic, {}, None, zk_version, czxid)
    check_utf8(path, data)
    content = read_json(_topic_decoder, path, data)
    adding, removing = content.adding_replicas, content.removing_replicas
    partitions: dict[int, ReplicaAssignment] = {}
    checked: dict[tuple[BrokerId, ...], ReplicaAssignment] = {}
    for number, replicas in content.partitions.items():
        known = checked.get(replicas)
        if known is not None:
            partitions[number] = known
            continue
        if not replicas:
            raise ZnodeMalformed(path, f"partitions.{number}: no replicas")
        check_distinct(path, f"partitions.{number}", replicas)
        partitions[number] = checked[replicas] = ReplicaAssignment(replicas)
    for number in sorted(adding.keys() | removing.keys()):
        partitions[number] = _reassigning(path, number, content)
    for number, former in content.deleting_replicas.items():
        if number in partitions:
            held = partitions[number]
            deleting = tuple(dict.fromkeys(each for each in former if each not in held.replicas))
            partitions[number] = msgspec.structs.replace(held, deleting=deleting)
    return TopicAssignment(topic, partitions, _topic_id(path, content.topic_id), zk_version, czxid)


def encode_state(state: LeaderIsrAndControllerEpoch) -> bytes:
    """Content of a state znode, version 1, in Kafka's order of fields. The zk version is not content."""
    decided = state.leader_and_isr
    return _encode(_StateJsonV1(state.controller_epoch, decided.leader, 1, decided.leader_epoch, decided.isr))


def decode_state(path: str, data: bytes, *, zk_version: ZkVersion) -> LeaderIsrAndControllerEpoch:
    """Read a state znode, whose Stat says `zk_version`. Raises ZnodeMalformed."""
    content = read_json(_state_decoder, path, data)
    isr = content.isr
    if len(isr) > 1:
        check_distinct(path, "isr", isr)
    return LeaderIsrAndControllerEpoch(
        LeaderAndIsr(content.leader, content.leader_epoch, isr, zk_version), content.controller_epoch
    )


def _reassigning(path: str, number: int, content: _TopicJson) -> ReplicaAssignment:
    replicas = content.partitions.get(number, ())
    adding, removing = content.adding_replicas.get(number, ()), content.removing_replicas.get(number, ())
    for field, changed in (("adding_replicas", adding), ("removing_replicas", removing)):
        check_distinct(path, f"{field}.{number}", changed)
        if foreign := [replica for replica in changed if replica not in replicas]:
            raise ZnodeMalformed(path, f"{field}.{number}: {foreign} not among the replicas {list(replicas)}")
    if both := [replica for replica in adding if replica in removing]:
        raise ZnodeMalformed(path, f"adding_replicas.{number}: {both} stands under removing_replicas too")
    if len(removing) == len(replicas):
        raise ZnodeMalformed(path, f"removing_replicas.{number}: leaves no replica of {list(replicas)}")
    return ReplicaAssignment(replicas, adding, removing)


def _topic_id(path: str, text: str | None) -> TopicId | None:
    if text is None:
        return None
    try:
        return decode_topic_id(text)
    except ValueError as error:
        raise ZnodeMalformed(path, f"topic_id: {error}") from error
