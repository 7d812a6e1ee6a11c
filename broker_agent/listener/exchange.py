"""One request and its answer, as a handler sees them. Data loop only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from time import perf_counter_ns
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from regency.broker_agent.listener.stats import Closing, RequestTimes
from regency.broker_agent.listener.turns import Aside, Turns
from regency.broker_agent.steps import Steps
from regency.kafka.codec import Message, Request, encode_body, frame_response
from regency.model.principals import ANONYMOUS, RequestContext

T = TypeVar("T")

LONGEST_WAIT_MS: Final = 300_000
"""How long a client may let a fetch or a produce wait. Clients ask 0.5 and 30 s."""


Answer: TypeAlias = bytes | bytearray
"""An encoded body."""

Building: TypeAlias = Callable[[], Message]
"""Makes a response of what belongs to its request alone, on any thread."""


class ExchangeOwner(Protocol):
    """The connection a request came on."""

    @property
    def peer_host(self) -> str:
        """The client's IP address."""
        ...

    @property
    def turns(self) -> Turns:
        """Where steps have their turn."""
        ...

    @property
    def aside(self) -> Aside:
        """Where what is large is encoded."""
        ...

    def hold(self, hold: bool) -> None:
        """Whether to begin no further request: what this one appends comes first."""
        ...

    def answered(self) -> None:
        """An exchange has its answer: write what is next in order."""
        ...

    def close_for(self, reason: Closing, detail: str) -> None:
        """End the connection, now, without answering anything more."""
        ...

    def failed(self, exchange: Exchange, error: Exception) -> None:
        """The handler met what it does not expect: log it, answer an error if that is possible."""
        ...


class Exchange:
    """A request that is answered exactly once: by `answer`, `answer_body`, `answer_nothing` or `refuse`.

    An answer to a connection that has ended is dropped, so a handler needs no care about that. `listener` is the name
    of the listener the request came in on, which decides the endpoints its answer names.
    """

    __slots__ = (
        "_cancel",
        "_erred",
        "_owner",
        "began",
        "done",
        "done_at",
        "frame",
        "handled",
        "is_large",
        "listener",
        "request",
        "times",
    )

    def __init__(self, owner: ExchangeOwner, listener: str, request: Request, times: RequestTimes) -> None:
        self._owner = owner
        self.times = times
        """Of requests of this kind; a handler that knows better which kind this is says so."""
        self.began = perf_counter_ns()
        self.handled = 0
        """When its handler returned; 0 before."""
        self.done_at = 0
        self._erred = False
        self._cancel: Callable[[], object] | None = None
        self.listener = listener
        self.request = request
        self.is_large = request.is_large
        """Whether the answer is put together and encoded aside; a handler that makes a large one says so."""
        self.done = False
        self.frame: bytearray | None = None

    @property
    def owner(self) -> ExchangeOwner:
        """The connection it came on."""
        return self._owner

    @property
    def context(self) -> RequestContext:
        """Who asks, and from where."""
        return RequestContext(ANONYMOUS, self.listener, self._owner.peer_host, self.request.client_id or "")

    def answer(self, message: Message) -> None:
        """Answer with a response message, which may not change any more. An error of the whole is counted."""
        if not self.done:
            error = getattr(message, "error_code", None)
            if error:
                self.count_error(error)
            if self.is_large:
                encoding = self._owner.aside.run(encode_body, self.request.version, message)
                encoding.add_done_callback(partial(self._then, self.answer_body))
            else:
                self.answer_body(encode_body(self.request.version, message))

    def answer_body(self, body: Answer) -> None:
        """Answer with the encoded body of a response."""
        if not self.done:
            request = self.request
            self.frame = frame_response(request.api_key, request.version, request.correlation_id, body)
            self._finish()

    def answer_nothing(self) -> None:
        """The request wants no answer: produce with acks=0."""
        if not self.done:
            self._finish()

    def take(self, outcome: Building | Message | Answer) -> None:
        """Answer with what is encoded, what is to be encoded, or what is to be put together first."""
        if isinstance(outcome, bytes | bytearray):
            self.answer_body(outcome)
        elif not callable(outcome):
            self.answer(outcome)
        elif self.is_large:
            self._owner.aside.run(outcome).add_done_callback(partial(self._then, self.answer))
        else:
            self.answer(outcome())

    def refuse(self, reason: Closing, detail: str) -> None:
        """Close the connection instead of answering."""
        if not self.done:
            self._owner.close_for(reason, detail)

    def fail(self, error: Exception) -> None:
        """The request could not be handled for an unforeseen reason."""
        if not self.done:
            self._owner.failed(self, error)

    def count_error(self, error: int) -> None:
        """The answer has this error code, once more."""
        self.times.errors[error] += 1
        if not self._erred:
            self._erred = True
            self.times.erred += 1

    def cancel_with(self, cancel: Callable[[], object]) -> None:
        """What to call when the connection ends before the answer is there."""
        if not self.done:
            self._cancel = cancel

    def run(self, work: Coroutine[Any, Any, Building | Message | Answer]) -> None:
        """Answer with the outcome of a coroutine, encoded or not. It is cancelled when the connection ends."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(partial(self._then, self.take))
        self.cancel_with(task.cancel)

    def work(self, steps: Steps[Building | Message | None]) -> None:
        """Answer with the outcome of work in steps: now, if one is enough. It ends with the connection.

        None: whatever the work has begun answers.
        """
        if self._step(steps):
            self._owner.turns.add(partial(self._step, steps))

    def change(self, steps: Steps[None]) -> None:
        """Do work that changes something: before any further request of the connection, and to its end in any case.

        Whatever it has begun answers.
        """
        if self._step_on(steps):
            self._owner.hold(True)
            self._owner.turns.add(partial(self._change_on, steps))

    def abandon(self) -> None:
        """The connection has ended: whatever works on this request may stop."""
        if not self.done:
            self.done = True
            if self._cancel is not None:
                self._cancel()

    def _change_on(self, steps: Steps[None]) -> bool:
        goes_on = self._step_on(steps)
        if not goes_on:
            self._owner.hold(False)
        return goes_on

    def _step(self, steps: Steps[Building | Message | None]) -> bool:
        """Take one, unless the outcome is not waited for any more; whether there are more."""
        if self.done:
            steps.close()
            return False
        return self._step_on(steps)

    def _step_on(self, steps: Steps[Any]) -> bool:
        try:
            next(steps)
        except StopIteration as end:
            outcome = end.value
            if outcome is not None:
                guarded(self, lambda: self.take(outcome))
        except Exception as error:  # noqa: BLE001 - one request must never take the data loop down
            self.fail(error)
        else:
            return True
        return False

    def _then(self, take: Callable[[T], None], work: asyncio.Future[T]) -> None:
        """What was done aside, or by a coroutine, is there."""
        if work.cancelled():
            return
        error = work.exception()
        if error is None:
            guarded(self, lambda: take(work.result()))
        elif isinstance(error, Exception):
            self.fail(error)

    def _finish(self) -> None:
        self.done = True
        self.done_at = perf_counter_ns()
        self._cancel = None
        self._owner.answered()


def guarded(exchange: Exchange, work: Callable[[], None]) -> None:
    """Run part of a handler; what it raises fails this exchange and nothing else."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - one request must never take the data loop down
        exchange.fail(error)
