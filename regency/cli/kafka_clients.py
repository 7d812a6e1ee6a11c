"""Kafka clients as the commands need them: quiet, bounded, and with errors that say what to do."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from regency.cli.exits import CommandFailed, Exit

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_MS = 30_000

_silent = logging.getLogger("regency.cli.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


@contextmanager
def admin_client(servers: str) -> Iterator[KafkaAdminClient]:
    """A client for admin requests. Raises CommandFailed when no broker answers, and for what goes wrong inside."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    try:
        client = KafkaAdminClient(
            bootstrap_servers=servers.split(","),
            client_id="regency-cli",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            bootstrap_timeout_ms=int(CONNECT_TIMEOUT_S * 1000),
        )
    except (KafkaError, ValueError) as error:
        raise unreachable(servers) from error
    try:
        yield client
    except KafkaError as error:
        raise CommandFailed(
            f"{servers}: {error}.", hint="`regency status` shows whether all brokers are up."
        ) from error
    except RuntimeError as error:
        if "controller" not in str(error):
            raise
        raise CommandFailed("No controller answered; one is perhaps being elected.", hint="Try again.") from error
    finally:
        client.close()


def client_config(servers: str) -> dict[str, object]:
    """Configuration that all librdkafka clients here share; its log goes nowhere, errors reach their callbacks."""
    return {"bootstrap.servers": servers, "client.id": "regency-cli", "logger": _silent}


def check_reachable(client: confluent_kafka.Producer | confluent_kafka.Consumer, servers: str) -> None:
    """Raises CommandFailed when no broker answers in 10 s."""
    try:
        client.list_topics(timeout=CONNECT_TIMEOUT_S)
    except confluent_kafka.KafkaException as error:
        raise unreachable(servers) from error


def unreachable(servers: str) -> CommandFailed:
    """Nobody answered."""
    return CommandFailed(
        f"No broker answered at {servers} within {CONNECT_TIMEOUT_S:g} s.",
        hint="Check the address, or start a cluster with `regency up --detach`.",
        status=Exit.TIMED_OUT,
    )
