"""Creating a topic and waiting for its leaders: for `regency topics create`, and for commands that need a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

from regency.cli.asking.deletions import refuse_if_going
from regency.cli.asking.kafka_clients import REQUEST_TIMEOUT_MS, admin_client
from regency.cli.asking.refusals import refusal
from regency.cli.context import say
from regency.cli.exits import CommandFailed, Exit
from regency.model.kafka_errors import ErrorCode

BROKERS_DEFAULT = -1


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
    topic_id: object = None

    @property
    def existed(self) -> bool:
        """Whether a topic of the name was there already."""
        return self.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def create_topic(client: KafkaAdminClient, servers: str, topic: str, wanted: WantedTopic) -> CreateReply:
    """Create the topic, or learn that it is there. Raises CommandFailed, also where it is there but being deleted."""
    asked = {topic: msgspec.structs.asdict(wanted)}
    answer = client.create_topics(asked, timeout_ms=REQUEST_TIMEOUT_MS, raise_errors=False)
    reply = msgspec.convert(answer["topics"][0], CreateReply)
    if reply.existed:
        refuse_if_going(servers, topic)
    elif reply.error_code != ErrorCode.NONE:
        raise refusal_of(reply)
    return reply


def refusal_of(reply: CreateReply) -> CommandFailed:
    """The error of a topic that was not created."""
    return refusal(f"topic {reply.name}", reply.error_code, reply.error_message)


def wait_for_leaders(client: KafkaAdminClient, topic: str, timeout_ms: int) -> None:
    """Return when each partition has a leader. Raises CommandFailed with IN_PROGRESS when that takes too long."""
    from kafka.errors import KafkaTimeoutError

    try:
        client.wait_for_topics([topic], timeout_ms=timeout_ms)
    except KafkaTimeoutError as error:
        raise CommandFailed(
            f"Topic {topic} is there, but not every partition got a leader: {error}.",
            hint="`regency topics describe` and `regency status` show more; go on when brokers are back.",
            status=Exit.IN_PROGRESS,
        ) from error


def ensure_topic(servers: str, topic: str, wanted: WantedTopic) -> None:
    """Create the topic where it is not there, and wait for its leaders. Raises CommandFailed."""
    with admin_client(servers) as client:
        if not create_topic(client, servers, topic, wanted).existed:
            say(f"Created topic {topic}.")
        wait_for_leaders(client, topic, REQUEST_TIMEOUT_MS)
