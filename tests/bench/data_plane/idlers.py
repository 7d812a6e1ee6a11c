"""Consumers to whom nothing comes: each polls one partition at its end, in a process of their own.

`plain` ones send the Fetch that confluent-kafka's consumers send, and wait as those do, a thousand of them on one
thread, so that on two cores it is the agent's work that is measured. `confluent` ones are confluent-kafka's, with all
its threads.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import selectors
import socket
from types import TracebackType
from typing import Any, Self

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from data_plane.topics import until
from regency.kafka.codec import FetchRequest, encode_request

FETCH_VERSION = 11
"""The last that names topics by name in classic encoding; what it costs the agent differs little from the newest."""
WAIT_MS = 500
"""fetch.wait.max.ms, as confluent-kafka has it."""


class Idlers:
    """So many idle consumers, from entering a `with` block, when each has asked once, until leaving it."""

    def __init__(self, client: str, servers: str, topic: str, *, partitions: int, consumers: int) -> None:
        context: Any = multiprocessing.get_context("spawn")
        self._ready = context.Event()
        self._ending = context.Event()
        self._answers = context.Value("q", 0)
        arguments = (servers, topic, partitions, consumers, self._ready, self._ending, self._answers)
        target = {"plain": _plain, "confluent": _confluent}[client]
        self._process = context.Process(target=target, args=arguments, daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        until(lambda: self._ready.is_set() or not self._process.is_alive(), "every consumer has asked", 300)
        if not self._process.is_alive():
            raise RuntimeError(f"the consumers' process ended with {self._process.exitcode}; what it said is above")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._process.join(60)
        if self._process.exitcode is None:
            self._process.kill()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def answers(self) -> int:
        """Answers that plain consumers had; 0 of others."""
        return int(self._answers.value)


def _plain(servers: str, topic: str, partitions: int, consumers: int, ready: Any, ending: Any, answers: Any) -> None:
    host, _, port = servers.split(",", maxsplit=1)[0].rpartition(":")
    requests = [_fetch(topic, partition) for partition in range(partitions)]
    silent = set(range(consumers))
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        for number in range(consumers):
            connection = stack.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(requests[number % partitions])
            selector.register(connection, selectors.EVENT_READ, (number, connection))
        while not ending.is_set():
            for key, _ in selector.select(0.1):
                number, asking = key.data
                if not _take_answer(asking):
                    raise RuntimeError("the agent closed an idle consumer's connection")
                asking.sendall(requests[number % partitions])
                answers.value += 1
                silent.discard(number)
            if not silent:
                ready.set()


def _take_answer(connection: socket.socket) -> bool:
    """Read a whole answer, which is small; False at the end of the stream."""
    size = connection.recv(4, socket.MSG_WAITALL)
    return len(size) == 4 and len(connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)) > 0


def _fetch(topic: str, partition: int) -> bytes:
    topic_class = FetchRequest.FetchTopic
    wanted = topic_class.FetchPartition(
        partition=partition, current_leader_epoch=-1, fetch_offset=0, log_start_offset=-1, partition_max_bytes=1 << 20
    )
    request = FetchRequest(
        version=FETCH_VERSION,
        replica_id=-1,
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=50 << 20,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=[topic_class(topic=topic, partitions=[wanted])],
        forgotten_topics_data=[],
        rack_id="",
    )
    return bytes(encode_request(FETCH_VERSION, 1, "idle", request))


def _confluent(
    servers: str, topic: str, partitions: int, consumers: int, ready: Any, ending: Any, answers: Any
) -> None:
    del answers
    made = [
        Consumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False})
        for _ in range(consumers)
    ]
    for number, consumer in enumerate(made):
        consumer.assign([TopicPartition(topic, number % partitions, OFFSET_END)])
    for consumer in made:  # each has a connection of its own, and fetches as soon as it has
        consumer.list_topics(topic, 60)
        consumer.poll(1.0)
    ready.set()
    ending.wait()
    for consumer in made:
        consumer.close()
