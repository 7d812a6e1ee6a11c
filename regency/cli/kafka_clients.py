"""Kafka clients as the commands need them: quiet, bounded, and with errors that say what to do."""

from __future__ import annotations

import logging
import selectors
import socket
import struct
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress

import confluent_kafka
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, UnknownBrokerIdError

from regency.cli.exits import CommandFailed, Exit

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_MS = 30_000
_WHICH_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 0, -1)
"""ApiVersions version 0, correlation id 0, no client id, with its length before it: any broker answers that."""

_silent = logging.getLogger("regency.cli.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


@contextmanager
def admin_client(servers: str) -> Iterator[KafkaAdminClient]:
    """A client for admin requests. Raises CommandFailed when no broker answers, and for what goes wrong inside."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    first = first_that_answers(servers)
    try:
        client = KafkaAdminClient(
            bootstrap_servers=[first],  # it would wait for a paused one until its time is over
            client_id="regency-cli",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            bootstrap_timeout_ms=int(CONNECT_TIMEOUT_S * 1000),
        )
    except KafkaError as error:
        raise unreachable(servers) from error
    try:
        yield client
    except UnknownBrokerIdError as error:
        raise CommandFailed(
            f"Broker {error} is named by the others, but cannot be reached.",
            hint="Try again when another has taken over; `regency status` shows whether all brokers are up.",
        ) from error
    except KafkaError as error:
        raise CommandFailed(
            f"{servers}: {error}.", hint="`regency status` shows whether all brokers are up."
        ) from error
    except RuntimeError as error:
        if "controller" not in str(error):
            raise
        raise CommandFailed(
            "No controller answered; one is perhaps being elected.", hint="Try again; `regency status` shows who rules."
        ) from error
    finally:
        client.close()


def client_config(servers: str) -> dict[str, object]:
    """Configuration that all librdkafka clients here share; its log goes nowhere, errors reach their callbacks."""
    return {"bootstrap.servers": servers, "client.id": "regency-cli", "logger": _silent}


def first_that_answers(servers: str) -> str:
    """The one of `host:port,...` that answers first: a paused broker takes connections, but never answers.

    Raises CommandFailed when none does in 10 s, and for what is no address.
    """
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    with ExitStack() as stack, selectors.DefaultSelector() as waiting:
        for server in [server.strip() for server in servers.split(",")]:
            host, colon, port = server.rpartition(":")
            if not colon or not port.isdecimal():
                raise CommandFailed(f"{server!r} is not HOST:PORT.", hint="Name brokers such as localhost:9092.")
            with suppress(OSError, OverflowError):
                link = stack.enter_context(socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S))
                link.sendall(_WHICH_VERSIONS)
                waiting.register(link, selectors.EVENT_READ, server)
        while waiting.get_map() and (left_s := deadline - time.monotonic()) > 0:
            for key, _ in waiting.select(left_s):
                if _has_answered(key.fileobj):
                    return str(key.data)
                waiting.unregister(key.fileobj)
    raise unreachable(servers)


def _has_answered(link: object) -> bool:
    """Whether there is something to read, and not only the end."""
    assert isinstance(link, socket.socket)
    try:
        return bool(link.recv(1))
    except OSError:
        return False


def check_reachable(client: confluent_kafka.Producer | confluent_kafka.Consumer, servers: str) -> None:
    """Raises CommandFailed when no broker answers in 10 s."""
    first_that_answers(servers)
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
