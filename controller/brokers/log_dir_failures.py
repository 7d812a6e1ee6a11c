"""A log directory of a live broker failed: find out which replicas were in it, and move what they led.

The broker only says that one of its directories failed. It is asked once more to host what it is known to host with
nothing changed, and answers KAFKA_STORAGE_ERROR for what it cannot reach (see agent_troubles.py). Replicas that are
known to be out of reach stay that until the broker restarts: a second failure does not bring back those of the first.
Source: KIP-112.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from regency.controller.events import ControllerState, Notification
from regency.controller.state.states import ReplicaState
from regency.controller.store.access import StoreAccess
from regency.controller.term import Term
from regency.model import znodes
from regency.model.crash_points import crash_point
from regency.model.errors import ZnodeMalformed
from regency.model.ids import BrokerId, TopicPartition
from regency.model.znodes import paths

logger = logging.getLogger(__name__)


class LogDirsFailed(Notification):
    """Log directory notifications were written."""

    state = ControllerState.LOG_DIR_CHANGE
    cause = "log_dir_failure"


def log_dir_notifications(access: StoreAccess) -> tuple[str, ...]:
    """Paths of the log directory notifications there are."""
    parent = paths.LOG_DIR_EVENT_NOTIFICATION
    return tuple(f"{parent}/{name}" for name in access.children(parent))


def on_log_dirs_failed(term: Term) -> None:
    """Ask the brokers named what they can still reach, then delete exactly the notifications that were read."""
    listed = log_dir_notifications(term.store.access)
    if not listed:
        return
    crash_point("controller.log_dirs.after_list")
    for broker in _named(term.store.access, listed):
        if broker not in term.context.brokers:
            logger.info("broker %d, of which a log directory failed, is not registered (any more)", broker)
            continue
        hosted = _hosted(term, broker)
        why = f"one of its log directories failed; it is asked for the {len(hosted)} replicas it may still reach"
        term.decisions.note(f"broker {broker}", "live", "with a failed directory", why)
        for partition in hosted:
            term.batch.host((broker,), partition)
    crash_point("controller.log_dirs.before_deletion")
    term.store.delete_notifications(listed)


def _named(access: StoreAccess, listed: Sequence[str]) -> list[BrokerId]:
    """Brokers these notifications name, each once, in order; malformed ones are reported and skipped."""
    named = set()
    for znode in access.read_many(listed):
        if znode is None:
            continue
        try:
            named.add(znodes.decode_log_dir_event(znode.path, znode.data))
        except ZnodeMalformed as error:
            access.report(error, znode, "It is removed; a directory that failed is not looked for because of it.")
    return sorted(named)


def _hosted(term: Term, broker: BrokerId) -> list[TopicPartition]:
    """What the broker is wanted to host now and is not known to have lost."""
    context = term.context
    lost = context.offline_replicas.get(broker, ())
    return [
        each
        for each in context.partitions_on([broker])
        if each not in lost
        and not context.is_being_deleted(each.topic)
        and context.replica_state(each, broker) is ReplicaState.ONLINE
    ]
