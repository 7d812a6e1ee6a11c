"""Which handler reacts to which event, while this controller rules. The tables are the whole routing of a term.

A handler may read and write ZooKeeper, change the context and fill the batch; what it wants brokers to do is handed
over when it has returned, and only then is whoever asked answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from regency.controller.agent_troubles import on_agent_troubled
from regency.controller.brokers import on_brokers_changed
from regency.controller.controlled_shutdown import ShutdownsOverdue, on_shutdowns_overdue, shut_down_broker
from regency.controller.events import (
    AgentTroubled,
    AssignmentsChanged,
    BrokersChanged,
    ConfigsChanged,
    ControlledShutdown,
    CreateTopics,
    Event,
    IsrsChanged,
    RequestsChanged,
    SnapshotWanted,
    TopicsChanged,
)
from regency.controller.inquiries import InquiriesDue, LogEndsTold
from regency.controller.isr_changes import on_isrs_changed
from regency.controller.leader_balance import LeaderBalanceDue, on_leader_balance_due
from regency.controller.leader_elections import ElectionsAsked, ElectLeaders, elect_leaders, on_elections_asked
from regency.controller.log_dir_failures import LogDirsFailed, on_log_dirs_failed
from regency.controller.partition_creation import CreatePartitions, add_partitions
from regency.controller.requests import report_pending_requests
from regency.controller.term import Term
from regency.controller.topic_creation import create_topics
from regency.controller.topics import on_assignments_changed, on_topics_changed
from regency.controller.unclean_elections import on_inquiries_due, on_log_ends_told


def _elect_offline(term: Term) -> None:
    """Settings changed: an unclean election may be allowed where none was."""
    if term.context.leaderless:
        term.partitions.trigger_online()


NOTIFICATIONS: Final[Mapping[type[Event], Callable[[Term], None]]] = {
    BrokersChanged: on_brokers_changed,
    TopicsChanged: on_topics_changed,
    AssignmentsChanged: on_assignments_changed,
    IsrsChanged: on_isrs_changed,
    RequestsChanged: report_pending_requests,
    ConfigsChanged: _elect_offline,
    ElectionsAsked: on_elections_asked,
    LogDirsFailed: on_log_dirs_failed,
    SnapshotWanted: lambda term: term.batch.snapshot(),
}
"""Events that say "look again"."""

ANSWERS: Final[Mapping[type[Event], Callable[[Term, Any], None]]] = {
    AgentTroubled: on_agent_troubled,
    LogEndsTold: on_log_ends_told,
    InquiriesDue: on_inquiries_due,
    LeaderBalanceDue: on_leader_balance_due,
    ShutdownsOverdue: on_shutdowns_overdue,
}
"""Events that bring something of a controller epoch, dropped when that is over. Each is given to its handler."""

REQUESTS: Final[Mapping[type[Event], Callable[[Term, Any], Any]]] = {
    CreateTopics: create_topics,
    CreatePartitions: add_partitions,
    ControlledShutdown: shut_down_broker,
    ElectLeaders: elect_leaders,
}
"""Events that somebody waits for. What the handler returns is the answer."""
