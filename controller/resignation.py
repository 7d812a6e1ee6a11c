"""A ruling controller is asked to stop: it says that it will, and lets another win."""

from __future__ import annotations

from regency.controller.events import ControllerState, Request
from regency.controller.term import Term
from regency.model.ids import ControllerEpoch

LET_OTHERS_MS = 3_000
"""So long a resigned controller stays out of the race while other brokers live: their candidates have a watch."""


class Resign(Request[ControllerEpoch]):
    """Stop ruling. The answer, the epoch that ends, is given while it still lasts."""

    state = ControllerState.CONTROLLER_CHANGE
    cause = "resign_request"


def resign(term: Term, _: Resign) -> ControllerEpoch:
    """Let the term end once this is answered."""
    term.asked_to_end = True
    return term.epoch


def out_of_race_ms(term: Term) -> int:
    """How long to let others race alone: not at all where no other live broker could have a candidate."""
    others = [broker for broker in term.context.brokers if broker != term.config.broker_id]
    return LET_OTHERS_MS if others else 0
