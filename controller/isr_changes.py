"""Leaders changed their ISRs: read what they wrote, and tell everybody."""

from __future__ import annotations

from regency.controller.partition_state_machine import refresh_leadership
from regency.controller.term import Term


def on_isrs_changed(term: Term) -> None:
    """Read the states the notifications name into the context, then delete exactly the notifications that were read."""
    listed = term.store.isr_notifications()
    if not listed:
        return
    named = term.store.read_isr_notifications(listed)
    known = [each for each in named if term.context.leadership(each) is not None]
    term.batch.metadata(refresh_leadership(term.context, term.store, known))
    term.store.delete_notifications(listed)
