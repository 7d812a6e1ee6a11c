"""Agents' answers that say the controller's picture may be wrong: read the truth in ZooKeeper again, then act on it.

The sender keeps repeating what was refused, ever more slowly; newer content replaces it.
See docs/internals/architecture.md.
"""

from __future__ import annotations

import logging

from regency.controller.brokers.membership import on_brokers_changed, take_offline
from regency.controller.channel.sender import Trouble
from regency.controller.events import AgentTroubled
from regency.controller.machines.state_machine import refresh_leadership
from regency.controller.reassignment.replica_deletion import fail_deletions
from regency.controller.store.access import EpochBehind
from regency.controller.term import Term
from regency.controller.topics.topics import take_in
from regency.model.crash_points import crash_point
from regency.model.errors import ControllerMoved
from regency.model.ids import LARGEST_LEAP, PartitionReplica

logger = logging.getLogger(__name__)


def on_agent_troubled(term: Term, event: AgentTroubled) -> None:
    """Act on an agent's answer, unless it is of an incarnation that is over. Raises ControllerMoved, EpochBehind."""
    trouble = event.trouble
    if trouble.stale_controller:
        _check_rule(term, trouble)
    broker = term.context.brokers.get(trouble.broker)
    if broker is None or broker.epoch != trouble.broker_epoch:
        return
    if trouble.stale_broker:
        on_brokers_changed(term)
        return
    if trouble.fenced:
        _read_fenced(term, trouble)
    if trouble.unknown:
        if term.report_once(f"broker {trouble.broker} does not know {trouble.unknown[0]}"):
            logger.warning(
                "broker %d does not know %d partitions as they are assigned, such as %s: reading their topics again",
                trouble.broker,
                len(trouble.unknown),
                trouble.unknown[0],
            )
        take_in(term, sorted({each.topic for each in trouble.unknown if each.topic in term.context.topics}))
    if trouble.failed_storage:
        _fail_storage(term, trouble)


def _check_rule(term: Term, trouble: Trouble) -> None:
    if not term.elector.still_rules(term.store.fence):
        raise ControllerMoved(f"Broker {trouble.broker} has seen a newer controller, and so has ZooKeeper.")
    if 0 <= trouble.controller_epoch - term.epoch <= LARGEST_LEAP:
        seen = trouble.controller_epoch
        raise EpochBehind(f"Broker {trouble.broker} has seen controller epoch {seen}, ours is {term.epoch}.", seen)


def _read_fenced(term: Term, trouble: Trouble) -> None:
    first = next(iter(trouble.fenced))
    if term.report_once(f"broker {trouble.broker} is ahead in {first}"):
        logger.warning(
            "broker %d holds higher leader epochs for %d partitions, such as %s: reading their states again",
            trouble.broker,
            len(trouble.fenced),
            first,
        )
    for partition in refresh_leadership(term.context, term.store, list(trouble.fenced)):
        term.batch.host(term.context.assignment(partition).replicas, partition)
    for partition in term.partitions.overtake(trouble.fenced):
        if term.report_once(f"broker {trouble.broker} is too far ahead in {partition}"):
            logger.error(
                "broker %d holds leader epoch %d of %s, too far beyond its state znode to be believed: it takes "
                "no order about it until it is restarted",
                trouble.broker,
                trouble.fenced[partition],
                partition,
            )


def _fail_storage(term: Term, trouble: Trouble) -> None:
    known = term.context.offline_replicas.get(trouble.broker, set())
    failed = [each for each in trouble.failed_storage if each not in known]
    if not failed:
        return
    why = f"it answered KAFKA_STORAGE_ERROR for {len(failed)} partitions, such as {failed[0]}"
    term.decisions.note(f"broker {trouble.broker}", "live", "with a failed directory", why)
    crash_point("controller.storage.before_offline")
    term.context.mark_offline(trouble.broker, failed)
    fail_deletions(term, [trouble.broker], failed)
    former = {each for each in failed if trouble.broker in term.context.assignment(each).deleting}
    lost = [each for each in failed if each not in former]
    take_offline(term, [PartitionReplica(*each, trouble.broker) for each in lost])
