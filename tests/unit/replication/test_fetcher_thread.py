"""The thread at the edge: real sockets, Kafka's own messages, and an end within a second."""

from __future__ import annotations

import queue
import socket
import struct
import threading
from uuid import UUID

import pytest

from regency.broker_agent.replication.api import LeaderAddress
from regency.broker_agent.replication.fetcher.fetcher_thread import Failed, FetcherThread, Rested
from regency.kafka.codec import FetchResponse, ListOffsetsResponse, encode_response, parse_request
from regency.kafka.fetching.values import (
    EpochEndOffset,
    FetchedPartition,
    FetcherLimits,
    FetchPartition,
    FetchPlan,
    FetchReply,
    ListedOffset,
    OffsetsPlan,
    OffsetsReply,
    Pause,
)
from regency.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ID = TopicId(UUID(int=9))
LIMITS = FetcherLimits(10_000, 1_000, 1, 500, 1_000)


class Peer:
    """A listener that answers each request with what `answers` gives, or not at all for None."""

    def __init__(self) -> None:
        self.requests = queue.Queue()
        self.answers = queue.Queue()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._open = []

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection) -> None:
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                frame = stream.read(struct.unpack(">i", size)[0])
                request = parse_request(frame)
                self.requests.put(request)
                answer = self.answers.get()
                if answer is None:
                    continue
                connection.sendall(encode_response(request.api_key, request.version, request.correlation_id, answer))

    def close(self) -> None:
        self._server.close()
        self.answers.put(None)
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


@pytest.fixture
def peer():
    peer = Peer()
    yield peer
    peer.close()


@pytest.fixture
def start():
    """Start a fetcher thread to a port; returns it and the queue of what it delivers."""
    started = []

    def begin(port):
        outcomes = queue.Queue()
        thread = FetcherThread(
            "ReplicaFetcherThread-0-1",
            "broker-2-fetcher-0",
            BrokerId(2),
            LeaderAddress(BrokerId(1), BrokerEpoch(5), "127.0.0.1", port),
            20_000,
            lambda call: call(),
            outcomes.put,
        )
        started.append(thread)
        return thread, outcomes

    yield begin
    for thread in started:
        thread.close()
        assert thread.join(5_000)


def plan() -> FetchPlan:
    wanted = [
        FetchPartition(A, ID, Offset(7), 1_000, LeaderEpoch(3), LeaderEpoch(2), Offset(1)),
        FetchPartition(B, ID, Offset(0), 1_000, LeaderEpoch(3)),
    ]
    return FetchPlan(BrokerEpoch(88), 5, 6, wanted, [(TopicPartition("gone", 4), ID)], {(ID, 0): A, (ID, 1): B}, LIMITS)


def fetch_response(*partitions):
    topic = FetchResponse.FetchableTopicResponse
    return FetchResponse(
        version=17,
        session_id=5,
        error_code=0,
        responses=[topic(version=17, topic_id=ID, partitions=list(partitions))],
        node_endpoints=[],
    )


def partition_data(number, **values):
    data = FetchResponse.FetchableTopicResponse.PartitionData
    epoch_end = values.pop("diverging", None)
    made = data(
        version=17, partition_index=number, high_watermark=0, log_start_offset=0, aborted_transactions=None, **values
    )
    if epoch_end is not None:
        made.diverging_epoch = data.EpochEndOffset(version=17, epoch=epoch_end[0], end_offset=epoch_end[1])
    return made


def test_a_fetch_says_who_we_are_and_where_we_stand(peer, start) -> None:
    thread, outcomes = start(peer.port)
    peer.answers.put(fetch_response())
    thread.send(plan())
    request = peer.requests.get(timeout=10)
    message = request.message
    assert (request.version, request.client_id) == (17, "broker-2-fetcher-0")
    assert (message.replica_state.replica_id, message.replica_state.replica_epoch) == (2, 88)
    assert (message.session_id, message.session_epoch) == (5, 6)
    assert (message.max_wait_ms, message.min_bytes, message.max_bytes) == (500, 1, 10_000)
    (topic,) = message.topics
    assert topic.topic_id == ID
    first, second = topic.partitions
    assert (first.fetch_offset, first.current_leader_epoch, first.last_fetched_epoch, first.log_start_offset) == (
        7,
        3,
        2,
        1,
    )
    assert (second.partition, second.last_fetched_epoch, second.partition_max_bytes) == (1, -1, 1_000)
    assert [(gone.topic_id, gone.partitions) for gone in message.forgotten_topics_data] == [(ID, [4])]
    assert outcomes.get(timeout=10) == FetchReply(ErrorCode.NONE, 5, [])


def test_an_answer_is_read_with_records_divergence_and_errors(peer, start) -> None:
    thread, outcomes = start(peer.port)
    peer.answers.put(
        fetch_response(
            partition_data(0, error_code=0, records=b"opaque", diverging=(2, 6)),
            partition_data(1, error_code=74, records=None),
            partition_data(5, error_code=0, records=b"not asked for"),
        )
    )
    thread.send(plan())
    reply = outcomes.get(timeout=10)
    assert [(name, fetched.error) for name, fetched in reply.partitions] == [
        (A, ErrorCode.NONE),
        (B, ErrorCode.FENCED_LEADER_EPOCH),
    ]
    first = reply.partitions[0][1]
    assert (bytes(first.records), first.diverging) == (b"opaque", EpochEndOffset(LeaderEpoch(2), Offset(6)))
    assert reply.partitions[1][1] == FetchedPartition(ErrorCode.FENCED_LEADER_EPOCH, Offset(0), Offset(0))


def test_an_error_code_from_the_future_is_an_unknown_error(peer, start) -> None:
    thread, outcomes = start(peer.port)
    peer.answers.put(fetch_response(partition_data(0, error_code=999, records=None)))
    thread.send(plan())
    assert outcomes.get(timeout=10).partitions[0][1].error is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("producers", [None, b"who was before" * 100], ids=["without producers", "with producers"])
def test_offsets_are_asked_for_as_a_replica(peer, start, producers) -> None:
    thread, outcomes = start(peer.port)
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    answered = topic.ListOffsetsPartitionResponse(
        version=7, partition_index=0, error_code=0, timestamp=-1, offset=12, leader_epoch=3, producers=producers
    )
    peer.answers.put(ListOffsetsResponse(version=7, topics=[topic(version=7, name="t", partitions=[answered])]))
    thread.send(OffsetsPlan(-2, [(A, LeaderEpoch(3))]))
    message = peer.requests.get(timeout=10).message
    (asked,) = message.topics[0].partitions
    assert (message.replica_id, asked.timestamp, asked.current_leader_epoch) == (2, -2, 3)
    expected = ListedOffset(ErrorCode.NONE, -1, Offset(12), LeaderEpoch(3), producers or b"")
    assert outcomes.get(timeout=10) == OffsetsReply([(A, expected)])


def test_nobody_there_is_a_failed_exchange_and_the_thread_goes_on(peer, start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    thread, outcomes = start(port)
    thread.send(plan())
    failed = outcomes.get(timeout=10)
    assert isinstance(failed, Failed)
    assert str(port) in failed.why
    peer.answers.put(fetch_response())
    thread.redirect(LeaderAddress(BrokerId(1), BrokerEpoch(6), "127.0.0.1", peer.port))
    thread.send(plan())
    assert outcomes.get(timeout=10) == FetchReply(ErrorCode.NONE, 5, [])


def test_a_pause_ends_with_time_or_with_a_command(peer, start) -> None:
    thread, outcomes = start(peer.port)
    thread.send(Pause(1))
    assert outcomes.get(timeout=10) == Rested()
    thread.send(Pause(None))
    thread.send(Pause(60_000))
    peer.answers.put(fetch_response())
    thread.send(plan())
    assert outcomes.get(timeout=10) == FetchReply(ErrorCode.NONE, 5, [])


def test_a_redirect_ends_the_exchange_that_is_under_way(peer, start) -> None:
    thread, outcomes = start(peer.port)
    thread.send(plan())
    peer.requests.get(timeout=10)
    thread.redirect(LeaderAddress(BrokerId(1), BrokerEpoch(6), "127.0.0.1", peer.port))
    assert isinstance(outcomes.get(timeout=10), Failed)


@pytest.mark.parametrize("command", [plan(), Pause(None), Pause(60_000)])
def test_closing_ends_the_thread_whatever_it_waits_for(peer, start, command) -> None:
    thread, outcomes = start(peer.port)
    thread.send(command)
    if isinstance(command, FetchPlan):
        peer.requests.get(timeout=10)
    thread.close()
    assert thread.join(5_000)
    assert outcomes.empty()
