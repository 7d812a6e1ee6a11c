"""What a summary of the cluster is made of, copied on the controller's thread: small things, and changed topics."""

from __future__ import annotations

import msgspec

from regency.controller.events import ControllerState, Request
from regency.controller.examination_events import copied
from regency.controller.standing import Standing
from regency.controller.term import Term
from regency.controller.topic_entry import TopicEntry
from regency.history.records import Decision
from regency.model.facts import Broker
from regency.model.ids import BrokerId, ControllerEpoch

PARTITIONS_AT_ONCE = 5_000
"""Copied in one event: a millisecond. A topic, which is copied as a whole, has at most 25,000."""


class Glance(msgspec.Struct, frozen=True):
    """What concerns the cluster as a whole, and topics that have changed since they were last copied."""

    epoch: ControllerEpoch
    began_ms: int
    brokers: tuple[Broker, ...]
    shutting_down: frozenset[BrokerId]
    absent: tuple[BrokerId, ...]
    """Members of the cluster that are not live."""
    topics: int
    partitions: int
    reassigning: int
    deleting: frozenset[str]
    """Topics whose deletion has begun."""
    standings: tuple[Standing, ...]
    decisions: tuple[Decision, ...]
    changed: dict[str, TopicEntry | None]
    """None: the topic is gone."""
    uncounted: int
    """So many others have changed too: ask again."""


class TakeGlance(Request[Glance]):
    """Look at the cluster. Topics that are copied count as looked at: only one may ask."""

    state = ControllerState.IDLE
    cause = "summary"

    def __init__(self, decisions: int, *, anew: bool) -> None:
        super().__init__()
        self.decisions = decisions
        self.anew = anew
        """Whoever asks knows nothing of this term yet: every topic counts as changed."""


def take_glance(term: Term, request: TakeGlance) -> Glance:
    """Some lists, and the lists of some topics."""
    context = term.context
    if request.anew:
        context.uncounted = dict.fromkeys(context.topics)
    changed: dict[str, TopicEntry | None] = {}
    left = PARTITIONS_AT_ONCE
    while context.uncounted and left > 0:
        name, _ = context.uncounted.popitem()
        entry = context.topics.get(name)
        changed[name] = None if entry is None else copied(entry)
        left -= 1 if entry is None else 1 + len(entry.assignments)
    return Glance(
        term.epoch,
        term.began_ms,
        tuple(context.brokers[broker] for broker in sorted(context.brokers)),
        frozenset(context.shutting_down),
        tuple(sorted(context.members - context.brokers.keys())),
        len(context.topics),
        context.partition_count,
        len(context.reassigning),
        frozenset(context.topics_deletion_started),
        tuple(term.channels.standings()),
        tuple(term.decisions.last(request.decisions)),
        changed,
        len(context.uncounted),
    )
