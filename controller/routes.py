"""Which handler reacts to which event, while this controller rules. The tables are the whole routing of a term.

A handler may read and write ZooKeeper, change the context and fill the batch; what it wants brokers to do is handed
over when it has returned, and only then is the caller answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from regency.controller.brokers.agent_troubles import on_agent_troubled
from regency.controller.brokers.forgetting import ForgetBroker, forget_broker
from regency.controller.brokers.isr_changes import on_isrs_changed
from regency.controller.brokers.log_dir_failures import LogDirsFailed, on_log_dirs_failed
from regency.controller.brokers.membership import on_brokers_changed
from regency.controller.brokers.reconcile import ReconcileDue, on_reconcile_due
from regency.controller.brokers.shutdown import SteerBroker, steer_broker
from regency.controller.copies import CopyCluster, CopyTopics, copy_cluster, copy_topics
from regency.controller.elections.controlled_shutdown import ShutdownsOverdue, on_shutdowns_overdue, shut_down_broker
from regency.controller.elections.leader_balance import LeaderBalanceDue, on_leader_balance_due
from regency.controller.elections.leader_elections import (
    ElectionsAsked,
    ElectLeaders,
    elect_leaders,
    on_elections_asked,
    on_inquiries_due,
    on_log_ends_told,
    on_logs_unheard,
)
from regency.controller.events import (
    AgentTroubled,
    AssignmentsChanged,
    BrokersChanged,
    ConfigsChanged,
    ControlledShutdown,
    CreateTopics,
    DeletionsAsked,
    Event,
    IsrsChanged,
    ReplicasDeleted,
    SnapshotWanted,
    TopicsChanged,
)
from regency.controller.machines.inquiries import InquiriesDue, LogEndsTold, LogsUnheard
from regency.controller.reassignment.events import (
    AlterReassignments,
    ListReassignments,
    ReassignmentsAsked,
    ReassignmentsWait,
)
from regency.controller.reassignment.requests import (
    alter_reassignments,
    list_reassignments,
    on_reassignments_asked,
    on_reassignments_wait,
)
from regency.controller.resignation import Resign, resign
from regency.controller.term import Term
from regency.controller.topics.config_changes import (
    AlterConfigs,
    NotificationsDue,
    alter_configs,
    look_after_notifications,
    on_notifications_due,
)
from regency.controller.topics.creation import create_topics
from regency.controller.topics.deletion_requests import (
    DeleteTopics,
    ListDeletions,
    delete_topics,
    list_deletions,
    on_deletions_asked,
    on_replicas_deleted,
)
from regency.controller.topics.partition_creation import CreatePartitions, add_partitions
from regency.controller.topics.topics import on_assignments_changed, on_topics_changed


def _on_configs_changed(term: Term) -> None:
    """Settings changed: an unclean election may be allowed where none was."""
    if term.context.leaderless:
        term.partitions.trigger_online()
    look_after_notifications(term)


NOTIFICATIONS: Final[Mapping[type[Event], Callable[[Term], None]]] = {
    BrokersChanged: on_brokers_changed,
    TopicsChanged: on_topics_changed,
    AssignmentsChanged: on_assignments_changed,
    IsrsChanged: on_isrs_changed,
    ReassignmentsAsked: on_reassignments_asked,
    ReassignmentsWait: on_reassignments_wait,
    DeletionsAsked: on_deletions_asked,
    ConfigsChanged: _on_configs_changed,
    ElectionsAsked: on_elections_asked,
    LogDirsFailed: on_log_dirs_failed,
    LogsUnheard: on_logs_unheard,
    SnapshotWanted: lambda term: term.batch.snapshot(),
}
"""Events that say "look again"."""

ANSWERS: Final[Mapping[type[Event], Callable[[Term, Any], None]]] = {
    ReplicasDeleted: on_replicas_deleted,
    AgentTroubled: on_agent_troubled,
    LogEndsTold: on_log_ends_told,
    NotificationsDue: on_notifications_due,
    InquiriesDue: on_inquiries_due,
    LeaderBalanceDue: on_leader_balance_due,
    ReconcileDue: on_reconcile_due,
    ShutdownsOverdue: on_shutdowns_overdue,
}
"""Events that bring something of a controller epoch, dropped when that is over. Each is given to its handler."""

REQUESTS: Final[Mapping[type[Event], Callable[[Term, Any], Any]]] = {
    CreateTopics: create_topics,
    CreatePartitions: add_partitions,
    AlterConfigs: alter_configs,
    Resign: resign,
    SteerBroker: steer_broker,
    ForgetBroker: forget_broker,
    DeleteTopics: delete_topics,
    ListDeletions: list_deletions,
    ControlledShutdown: shut_down_broker,
    ElectLeaders: elect_leaders,
    AlterReassignments: alter_reassignments,
    ListReassignments: list_reassignments,
    CopyCluster: copy_cluster,
    CopyTopics: copy_topics,
}
"""Events with a waiting caller. What the handler returns is the answer."""
