"""Kafka clients as the commands need them: quiet, bounded, and with errors that say what to do."""

from __future__ import annotations

import logging
import socket
from collections.abc import Collection, Iterator
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
    check_addresses(servers)
    try:
        client = KafkaAdminClient(
            bootstrap_servers=servers.split(","),
            client_id="regency-cli",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            bootstrap_timeout_ms=int(CONNECT_TIMEOUT_S * 1000),
        )
    except KafkaError as error:
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


def check_addresses(servers: str) -> None:
    """Raises CommandFailed when nobody listens at any of the addresses `host:port`, and for what is no address."""
    for server in servers.split(","):
        host, colon, port = server.strip().rpartition(":")
        if not colon or not port.isdecimal():
            raise CommandFailed(f"{server!r} is not HOST:PORT.", hint="Name brokers such as localhost:9092.")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
        except (OSError, OverflowError):
            continue
        return
    raise unreachable(servers)


def check_reachable(client: confluent_kafka.Producer | confluent_kafka.Consumer, servers: str) -> None:
    """Raises CommandFailed when no broker answers in 10 s."""
    check_addresses(servers)
    try:
        client.list_topics(timeout=CONNECT_TIMEOUT_S)
    except confluent_kafka.KafkaException as error:
        raise unreachable(servers) from error


def check_partition(topic: str, there: Collection[int], partition: int) -> None:
    """Raises CommandFailed when the partition is not among those of the topic; `there` has at least one."""
    if partition not in there:
        raise CommandFailed(f"Topic {topic} has no partition {partition}.", hint=f"It has 0 to {max(there)}.")


def unreachable(servers: str) -> CommandFailed:
    """Nobody answered."""
    return CommandFailed(
        f"No broker answers at {servers}.",
        hint="Check the address, or start a cluster with `regency up --detach`.",
        status=Exit.TIMED_OUT,
    )
