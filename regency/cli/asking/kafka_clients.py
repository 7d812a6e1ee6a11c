"""Kafka clients as the commands need them: quiet, bounded, and with errors that say what to do."""

from __future__ import annotations

import logging
import selectors
import socket
import struct
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import confluent_kafka
    from kafka.admin import KafkaAdminClient

from regency.cli.exits import CommandFailed, Exit
from regency.kafka.peer import PeerConnection, PeerUnavailable

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
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaConnectionError, KafkaError, UnknownBrokerIdError

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
        _connect_to_one_that_answers(client, first)
        yield client
    except UnknownBrokerIdError as error:
        raise CommandFailed(
            f"Broker {error} is named by the others, but cannot be reached.",
            hint="Try again when another has taken over; `regency status` shows whether all brokers are up.",
        ) from error
    except KafkaConnectionError as error:
        raise CommandFailed(
            f"A broker that is needed for this cannot be reached ({error}).",
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


def _connect_to_one_that_answers(client: KafkaAdminClient, first: str) -> None:
    """Have the client connected to a broker that answers: it asks that one from then on, what any broker may be asked.

    Else it picks one of all that are registered, and one that died or was paused is for as long as its session lasts.
    """
    brokers = _registered(first)
    with suppress(CommandFailed):  # the client may see more than this process, and has its own words if not
        answering = first if first in brokers else first_that_answers(",".join(brokers))
        client.get_broker_version_data(brokers[answering])


def _registered(server: str) -> dict[str, int]:
    """Ids of all brokers by their address, as this one knows them; nothing where it does not tell."""
    from regency.kafka.codec import DescribeClusterRequest

    host, _, port = server.rpartition(":")
    timeout_ms = int(CONNECT_TIMEOUT_S * 1000)
    peer = PeerConnection(
        host.strip("[]"),
        int(port),
        client_id="regency-cli",
        connect_timeout_ms=timeout_ms,
        request_timeout_ms=timeout_ms,
    )
    try:
        answer = peer.exchange(DescribeClusterRequest(version=1, endpoint_type=1), 1)
    except PeerUnavailable:
        return {}
    finally:
        peer.close()
    return {
        f"[{each.host}]:{each.port}" if ":" in each.host else f"{each.host}:{each.port}": each.broker_id
        for each in answer.brokers
    }


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
                raise CommandFailed(
                    f"{server!r} is not HOST:PORT.", hint="Name brokers such as localhost:9092.", status=Exit.USAGE
                )
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
    from confluent_kafka import KafkaException

    first_that_answers(servers)
    try:
        client.list_topics(timeout=CONNECT_TIMEOUT_S)
    except KafkaException as error:
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
