"""Which handler reacts to which event, while this controller rules. The tables are the whole routing of a term.

A handler may read and write ZooKeeper, change the context and fill the batch; what it wants brokers to do is handed
over when it has returned, and only then is the caller answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from regency.controller import copies
from regency.controller.brokers import agent_troubles, leaving, membership, notifications, reconcile
from regency.controller.elections import controlled_shutdown, leader_elections
from regency.controller.events import (
    AgentTroubled,
    AssignmentsChanged,
    BrokersChanged,
    ConfigsChanged,
    DeletionsAsked,
    Event,
    IsrsChanged,
    ReplicasDeleted,
    SnapshotWanted,
    TopicsChanged,
)
from regency.controller.machines import inquiries
from regency.controller.reassignment import moves, requests
from regency.controller.term import Resign, Term, resign
from regency.controller.topics import config_changes, creation, deletion_requests, partition_creation, topics


def _on_configs_changed(term: Term) -> None:
    """Settings changed: an unclean election may be allowed where none was."""
    if term.context.leaderless:
        term.partitions.trigger_online()
    config_changes.look_after_notifications(term)


NOTIFICATIONS: Final[Mapping[type[Event], Callable[[Term], None]]] = {
    BrokersChanged: membership.on_brokers_changed,
    TopicsChanged: topics.on_topics_changed,
    AssignmentsChanged: lambda term: topics.take_in(term, term.queue.take_marked_topics()),
    IsrsChanged: notifications.on_isrs_changed,
    requests.ReassignmentsAsked: requests.look_at_asked,
    moves.ReassignmentsWait: requests.on_reassignments_wait,
    DeletionsAsked: deletion_requests.on_deletions_asked,
    ConfigsChanged: _on_configs_changed,
    leader_elections.ElectionsAsked: leader_elections.on_elections_asked,
    notifications.LogDirsFailed: notifications.on_log_dirs_failed,
    inquiries.LogsUnheard: lambda term: term.partitions.ask_again(),
    SnapshotWanted: lambda term: term.batch.snapshot(),
}
"""Events that say "look again"."""

ANSWERS: Final[Mapping[type[Event], Callable[[Term, Any], None]]] = {
    ReplicasDeleted: deletion_requests.on_replicas_deleted,
    AgentTroubled: agent_troubles.on_agent_troubled,
    inquiries.LogEndsTold: lambda term, told: leader_elections.end_inquiries(term, term.inquiries.take_in(told.ends)),
    config_changes.NotificationsDue: config_changes.on_notifications_due,
    inquiries.InquiriesDue: lambda term, _: leader_elections.end_inquiries(term, term.inquiries.overdue()),
    leader_elections.LeaderBalanceDue: leader_elections.on_leader_balance_due,
    reconcile.ReconcileDue: lambda _, due: due.reconciler.step(),
    controlled_shutdown.ShutdownsOverdue: controlled_shutdown.on_shutdowns_overdue,
}
"""Events that bring something of a controller epoch, dropped when that is over. Each is given to its handler."""

REQUESTS: Final[Mapping[type[Event], Callable[[Term, Any], Any]]] = {
    creation.CreateTopics: creation.create_topics,
    partition_creation.CreatePartitions: partition_creation.add_partitions,
    config_changes.AlterConfigs: config_changes.alter_configs,
    Resign: resign,
    leaving.SteerBroker: leaving.steer_broker,
    leaving.ForgetBroker: leaving.forget_broker,
    deletion_requests.DeleteTopics: deletion_requests.delete_topics,
    deletion_requests.ListDeletions: lambda term, _: tuple(term.deletions.progress()),
    controlled_shutdown.ControlledShutdown: controlled_shutdown.shut_down_broker,
    leader_elections.ElectLeaders: leader_elections.elect_leaders,
    requests.AlterReassignments: requests.alter_reassignments,
    requests.ListReassignments: requests.list_reassignments,
    copies.CopyCluster: copies.copy_cluster,
    copies.CopyTopics: copies.copy_topics,
}
"""Events with a waiting caller. What the handler returns is the answer."""
