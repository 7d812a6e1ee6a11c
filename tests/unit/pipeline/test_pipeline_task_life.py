"""How a task finds out that Spark does not want it any more."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from regency.pipeline.sink.producer import TaskGivenUp, TaskLife, TopicProducer
from regency.pipeline.sink.settings import producer_settings

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["unix", "tcp"])
def connection(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Spark's end and the worker's."""
    if request.param == "unix":
        ends = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            worker = socket.create_connection(server.getsockname())
            ends = server.accept()[0], worker
    yield ends
    for end in ends:
        end.close()


@pytest.fixture
def life(connection: Pair) -> Iterator[TaskLife]:
    """As PySpark's daemon calls a worker: the connection is one of its variables, further up."""
    with os.fdopen(os.dup(connection[1].fileno()), "rb") as infile:
        yield _further_down()
        assert not infile.closed


def _further_down() -> TaskLife:
    return TaskLife.of_this_task()


def test_a_task_lives_as_long_as_its_connection(connection: Pair, life: TaskLife):
    spark, worker = connection
    life.check()
    spark.sendall(b"rows")
    life.check()
    worker.recv(4)
    life.check()
    spark.close()
    with pytest.raises(TaskGivenUp, match="Spark has given up this task"):
        life.check()


def test_rows_that_were_not_read_do_not_hide_the_end(connection: Pair, life: TaskLife):
    spark, _ = connection
    spark.sendall(b"rows")
    spark.close()
    with pytest.raises(TaskGivenUp):
        life.check()


def test_without_a_connection_a_task_lives():
    TaskLife.of_this_task().check()


def test_what_a_task_that_was_given_up_has_queued_is_not_waited_for(
    connection: Pair, life: TaskLife, monkeypatch: pytest.MonkeyPatch
):
    spark, _ = connection
    monkeypatch.setattr(TopicProducer, "_reach", lambda *_: None)  # as if a broker had answered before it went away
    settings = producer_settings({"kafka.bootstrap.servers": "127.0.0.1:1"}, once=True)
    with pytest.raises(TaskGivenUp), TopicProducer(settings, life) as producer:
        producer.make_room(10, 1)
        producer.send("t", 0, None, b"row", [])
        spark.close()
        producer.finish()
