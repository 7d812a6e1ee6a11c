"""Topics that a command makes for itself where they are not there yet."""

from __future__ import annotations

from collections.abc import Mapping

from kafka.errors import KafkaTimeoutError

from regency.cli.context import say
from regency.cli.exits import CommandFailed, Exit
from regency.cli.kafka_clients import REQUEST_TIMEOUT_MS, admin_client
from regency.cli.refusals import refusal
from regency.model.kafka_errors import ErrorCode

BROKERS_DEFAULT = -1


def ensure_topic(
    servers: str,
    topic: str,
    *,
    configs: Mapping[str, str],
    partitions: int = BROKERS_DEFAULT,
    replication_factor: int = BROKERS_DEFAULT,
) -> None:
    """Create the topic where it is not there, and wait for its leaders. Raises CommandFailed."""
    wanted = {
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": {},
        "configs": dict(configs),
    }
    with admin_client(servers) as client:
        answer = client.create_topics({topic: wanted}, timeout_ms=REQUEST_TIMEOUT_MS, raise_errors=False)["topics"][0]
        if answer["error_code"] == ErrorCode.NONE:
            say(f"Created topic {topic}.")
        elif answer["error_code"] != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise refusal(f"topic {topic}", answer["error_code"], answer.get("error_message"))
        try:
            client.wait_for_topics([topic], timeout_ms=REQUEST_TIMEOUT_MS)
        except KafkaTimeoutError as error:
            raise CommandFailed(
                f"Not every partition of {topic} has a leader: {error}.",
                hint="`regency topics describe` shows which; try again when brokers are back.",
                status=Exit.IN_PROGRESS,
            ) from error
