"""Creating a topic and waiting for its leaders: for `regency topics create`, and for commands that need a topic."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from uuid import UUID

import click
import msgspec

from regency.cli.asking.config_requests import BROKER, Resource, describe
from regency.cli.asking.deletions import refuse_if_going
from regency.cli.asking.refusals import refusal
from regency.cli.asking.wire import REQUEST_TIMEOUT_MS, ClusterWire, TopicFacts, cluster_wire
from regency.cli.context import INT32_MAX, completed, say
from regency.cli.exits import CommandFailed, Exit
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.described import Source
from regency.model.words import counted, listed
from regency.runtime.daemon_options import Renamed

BROKERS_DEFAULT = -1
MOST_COPIES = 3
"""Of a topic that a command makes by the way, where the cluster has no default of its own."""
_VERSION = 7
"""The first whose answer has the topic's id and its numbers."""
_LOOK_EVERY_S = 0.1

settings_option = click.option(
    "--set",
    "pairs",
    cls=Renamed,
    old=["--config"],
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=completed("config_pairs"),
    help="A setting of the topic; repeatable.",
)


class WantedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """What a CreateTopics request asks for; with `assignments`, replicas by partition, the numbers stay as they are."""

    num_partitions: int = BROKERS_DEFAULT
    replication_factor: int = BROKERS_DEFAULT
    assignments: Mapping[int, Sequence[int]] = {}
    configs: Mapping[str, str] = {}


class CreateReply(msgspec.Struct, frozen=True):
    """What the brokers answer. They tell no id and no numbers of a topic that was there already."""

    name: str
    error_code: int
    error_message: str | None = None
    num_partitions: int = BROKERS_DEFAULT
    replication_factor: int = BROKERS_DEFAULT
    topic_id: UUID | None = None

    @property
    def existed(self) -> bool:
        """Whether a topic of the name was there already."""
        return self.error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    @property
    def refusal(self) -> CommandFailed:
        """The error of a topic that was not created."""
        return refusal(f"topic {self.name}", self.error_code, self.error_message)


def create_topic(wire: ClusterWire, servers: str, topic: str, wanted: WantedTopic) -> CreateReply:
    """Create the topic, or learn that it is there. Raises CommandFailed, also where it is there but being deleted."""
    from regency.kafka.codec import CreateTopicsRequest

    topic_class = CreateTopicsRequest.CreatableTopic
    asked = topic_class(
        name=topic,
        num_partitions=wanted.num_partitions,
        replication_factor=wanted.replication_factor,
        assignments=[
            topic_class.CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in wanted.assignments.items()
        ],
        configs=[topic_class.CreatableTopicConfig(name=key, value=value) for key, value in wanted.configs.items()],
    )
    request = CreateTopicsRequest(topics=[asked], timeout_ms=REQUEST_TIMEOUT_MS, validate_only=False)
    (answer,) = wire.ask_ruler(request, _VERSION).topics
    reply = msgspec.convert(answer, CreateReply, from_attributes=True)
    if reply.existed:
        refuse_if_going(servers, topic)
    elif reply.error_code != ErrorCode.NONE:
        raise reply.refusal
    return reply


def wait_for_leaders(servers: str, topic: str, timeout_ms: int) -> TopicFacts:
    """The topic when each partition has a leader. Raises CommandFailed with IN_PROGRESS when that takes too long."""
    deadline = time.monotonic() + timeout_ms / 1000
    while isinstance(missing := _led(servers, topic), str):
        if time.monotonic() >= deadline:
            raise CommandFailed(
                f"Topic {topic} is there, but not every partition got a leader within {timeout_ms / 1000:g} s: "
                f"{missing}.",
                hint="`regency topics describe` and `regency status` show more; go on when brokers are back.",
                status=Exit.IN_PROGRESS,
            )
        time.sleep(_LOOK_EVERY_S)
    return missing


def ensure_topic(servers: str, topic: str, wanted: WantedTopic | None = None) -> TopicFacts:
    """Create the topic where it is not there, and wait for its leaders; as a broker tells it. Raises CommandFailed.

    Where none are wanted in particular it has default.replication.factor replicas; where nobody has set that, three, or
    as many as there are brokers.
    """
    with cluster_wire(servers) as wire:
        wanted = wanted or WantedTopic()
        if wanted.replication_factor == BROKERS_DEFAULT and not wanted.assignments:
            wanted = msgspec.structs.replace(wanted, replication_factor=_default_factor(wire))
        reply = create_topic(wire, servers, topic, wanted)
        if not reply.existed:
            numbers = counted(reply.num_partitions, "partition"), counted(reply.replication_factor, "replica")
            say(f"Created topic {topic}: {numbers[0]}, {numbers[1]}.")
    return wait_for_leaders(servers, topic, REQUEST_TIMEOUT_MS)


def _default_factor(wire: ClusterWire) -> int:
    live = wire.brokers()
    rows = describe(wire, Resource(BROKER, str(min(live))), ["default.replication.factor"]) if live else []
    if any(row.source != Source.DEFAULT_CONFIG.name for row in rows):
        return BROKERS_DEFAULT
    return min(MOST_COPIES, len(live))


def parse_assignment(text: str) -> dict[int, list[int]]:
    """Brokers by partition from `1:2:3,2:3:1`. Raises a usage error naming the partition that is wrong."""
    parsed: dict[int, list[int]] = {}
    for number, replicas in enumerate(text.split(",")):
        brokers = replicas.split(":")
        if not all(broker.strip().isdecimal() and int(broker) <= INT32_MAX for broker in brokers):
            raise click.BadParameter(
                f"partition {number}: {replicas!r} is not broker ids with ':' between them.", param_hint="--assignment"
            )
        parsed[number] = [int(broker) for broker in brokers]
    return parsed


def _led(servers: str, topic: str) -> TopicFacts | str:
    """The topic where all its partitions have leaders; else which have none, or why that is not known."""
    try:
        with cluster_wire(servers) as wire:
            [found] = wire.topics([topic])
    except CommandFailed as error:
        return error.message.rstrip(".")
    if found.error_code != ErrorCode.NONE:
        return refusal(f"topic {topic}", found.error_code).message.rstrip(".")
    leaderless = [str(each.partition_index) for each in found.partitions if each.leader is None]
    return f"without one: {listed(leaderless)}" if leaderless else found
