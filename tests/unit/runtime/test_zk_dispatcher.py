"""Who is told what: those who listened when it happened, each whatever another one does, in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from regency.model.clock import ManualClock
from regency.runtime.zookeeper.client import Dispatcher
from regency.runtime.zookeeper.core import Delivery
from regency.runtime.zookeeper.session import SessionEvent

CONNECTED, SUSPENDED = SessionEvent.CONNECTED, SessionEvent.SUSPENDED


class Core:
    """A session without a deadline."""

    def deadline_ms(self) -> int | None:
        return None


def event(kind: SessionEvent) -> Delivery:
    return Delivery(session_event=kind, generation=1)


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    dispatcher = Dispatcher("test", ManualClock())
    yield dispatcher
    dispatcher.stop(2)


def start_and_wait(dispatcher: Dispatcher) -> None:
    done = threading.Event()
    dispatcher.listen(lambda *_: done.set())
    dispatcher.put(event(SUSPENDED))
    dispatcher.start(Core())  # type: ignore[arg-type]
    assert done.wait(2)


def test_a_listener_does_not_hear_what_happened_before_it_listened(dispatcher: Dispatcher) -> None:
    heard: list[Any] = []
    dispatcher.put(event(CONNECTED))
    dispatcher.listen(lambda kind, generation: heard.append((kind, generation)))
    start_and_wait(dispatcher)
    assert heard == [(SUSPENDED, 1)]


def test_a_listener_that_raises_costs_the_others_nothing(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a fault of the callback")

    heard: list[SessionEvent] = []
    dispatcher.listen(broken)
    dispatcher.listen(lambda kind, _: heard.append(kind))
    dispatcher.put(event(CONNECTED))
    start_and_wait(dispatcher)
    assert heard == [CONNECTED, SUSPENDED]
    assert "a ZooKeeper callback failed" in caplog.text
