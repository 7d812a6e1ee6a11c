"""Where requests come in: a gRPC thread leaves one for the controller's thread and waits for the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from regency.controller.controller import Controller
from regency.controller.events import EventLoop, EventQueue, NotController, Request
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2 as pb

NOT_RULING: Final = "This controller does not rule; ask the one that does."

LOOK_EVERY_MS: Final = 250
OUT_OF_CONTACT_MS: Final = 5_000
"""So long a waiting caller bears it that the controller has no contact with ZooKeeper."""

T = TypeVar("T")
Reply = TypeVar("Reply")


class RequestGate:
    """Takes requests to one controller. Its methods run on gRPC's threads."""

    def __init__(self, controller: Controller, queue: EventQueue, loop: EventLoop, *, timeout_ms: int) -> None:
        self._controller = controller
        self._queue = queue
        self._loop = loop
        self._timeout_ms = timeout_ms

    def ask(self, request: Request[T]) -> T:
        """Queue a request and wait for its answer. Raises NotController, TimeoutError.

        Without contact with ZooKeeper nothing gets done: then the wait is a short one.
        """
        if not self._controller.view.ruling:
            raise NotController(NOT_RULING)
        self._queue.put(request)
        left_ms, lost_ms = self._timeout_ms, 0
        while True:
            try:
                return request.reply.result(min(LOOK_EVERY_MS, left_ms) / 1000)
            except TimeoutError:
                left_ms -= LOOK_EVERY_MS
                lost_ms = 0 if self._controller.in_contact else lost_ms + LOOK_EVERY_MS
                if left_ms <= 0 or lost_ms >= OUT_OF_CONTACT_MS:
                    raise

    def answer(
        self, request: Request[T], accept: Callable[[T], Reply], refuse: Callable[[ErrorCode, str], Reply]
    ) -> Reply:
        """The message that answers a request: made by `accept` from its answer, or by `refuse` where there is none."""
        try:
            answer = self.ask(request)
        except NotController:
            return refuse(*self.not_ruling())
        except TimeoutError:
            return refuse(ErrorCode.REQUEST_TIMED_OUT, self.too_busy())
        return accept(answer)

    def not_ruling(self) -> tuple[ErrorCode, str]:
        """What to answer where this controller does not rule: ask another, unless it is known that there is none.

        A client that gets NOT_CONTROLLER looks for the controller that rules, as long as it may. Where none can be
        elected that would be in vain, and the client would not learn why.
        """
        blocked = self._controller.view.blocked
        return (ErrorCode.REQUEST_TIMED_OUT, blocked) if blocked else (ErrorCode.NOT_CONTROLLER, NOT_RULING)

    def too_busy(self) -> str:
        """Why a request got no answer in time."""
        if not self._controller.in_contact:
            return "The controller has no contact with ZooKeeper; the request is still queued and may be done."
        return f"The controller is busy with {self._loop.state.label}; the request is still queued and may be done."


def refusal(error: ErrorCode, message: str) -> pb.Outcome:
    """The outcome of a request that was refused as a whole."""
    return pb.Outcome(error_code=error, message=message)
