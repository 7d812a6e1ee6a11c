"""Holes of Kafka's controller."""

from __future__ import annotations

from typing import Final

from simulation.defects.hole import Hole

_COST: Final = "It costs time only, and virtual time does not see what computing costs."

HOLES: Final[tuple[Hole, ...]] = (
    # Fencing, elections, ZooKeeper
    Hole(
        "KAFKA-6082",
        "A controller without its session went on writing.",
        "unfenced-writes deposition-unnoticed write-in-a-later-session",
    ),
    Hole(
        "KAFKA-12315",
        "What was to be sent when a controller was deposed stood in the way of its next term.",
        "context-survives-the-term batch-survives-the-term senders-survive-the-term",
    ),
    Hole(
        "KAFKA-13407",
        "A controller found its own id in /controller and took nothing over.",
        "own-id-counts-as-own own-znode-is-enough lost-reply-counts-as-won",
    ),
    Hole("KAFKA-2300", "One failed event left requests behind that failed all later ones.", "batch-survives-the-term"),
    Hole("KAFKA-1096", "A deposed controller took over its successor's epoch.", "newer-epoch-adopted"),
    Hole(
        "KAFKA-5502, KAFKA-5879, KAFKA-4447",
        "Handlers acted on what a watch of an earlier session had brought.",
        "no-look-again context-survives-the-term",
    ),
    Hole("KAFKA-9212", "Metadata told an older leader epoch than LeaderAndIsr did.", "old-epoch-in-metadata"),
    Hole(
        "KAFKA-9307",
        "A role change failed halfway, and its repeat counted as stale.",
        "answered-before-done unreachable-is-done failed-step-left-out",
    ),
    Hole(
        "KAFKA-3143",
        "A leader that died while nobody ruled stayed leader.",
        "dead-leader-at-failover bounce-over-failover",
    ),
    Hole(
        "KAFKA-1120, KAFKA-2729, KAFKA-3042, KAFKA-3083",
        "A restart was too fast to be noticed; a leader wrote its ISR on a version that had gone by.",
        "bounce-over-failover bounce-before-isr-change bounce-unnoticed isr-conflict-overwritten",
    ),
    Hole(
        "KAFKA-7235, KIP-380",
        "A broker did what its earlier incarnation was asked, or checkpointed before it knew all it hosts.",
        "race-in-two-steps bounce-unnoticed shutdown-of-another-incarnation any-broker-epoch earlier-process-obeyed "
        "begun-too-soon watermarks-lost leaves-without-epoch",
    ),
    Hole("KAFKA-9839", "A broker took a newer broker epoch than it knew for an error.", "newer-incarnation-refused"),
    Hole(
        "KAFKA-6584, KAFKA-7165, KAFKA-14845, ZOOKEEPER-2985, ZOOKEEPER-1387, ZOOKEEPER-4229",
        "A registration of an earlier session stood in the way of the new one, or was taken for it.",
        "registered-only-once lost-registration-unknown leftover-counts-as-registration",
    ),
    Hole(
        "KAFKA-9866, KAFKA-10149",
        "Rebalancing tried preferred leaders out of the ISR, or stood still during a reassignment.",
        "preferred-out-of-sync",
        "A reassignment that goes on elsewhere only delays: it ends before all must be well, and then is balanced.",
    ),
    Hole(
        "KAFKA-1188", "A broker took an older LeaderAndIsr after a failover.", "any-controller-epoch lower-leader-epoch"
    ),
    Hole(
        "KAFKA-4443",
        "After a failover LeaderAndIsr named leaders whose addresses no metadata had told.",
        "unreachable-is-done",
        "The order itself means nothing here: LeaderAndIsr brings the addresses along.",
    ),
    Hole(
        "KAFKA-5099, KAFKA-6193, KAFKA-6612, KAFKA-6630",
        "Deletion and reassignment went wrong at each other, or slowly.",
        "deleted-amid-reassignment reassignment-not-resumed deletions-not-resumed",
    ),
    Hole("KAFKA-6650", "A partition without a state znode could not become offline.", "existing-state-unread"),
    Hole("KAFKA-6753", "Offline partitions were counted anew for every event.", why_not=_COST),
    Hole("KAFKA-9089", "An error amid a reassignment left three places that disagreed.", "isr-after-replicas"),
    Hole("KAFKA-10040, KAFKA-13572", "A gauge was slow, or negative.", why_not="No metric is simulated."),
    # Deletion, reassignment, ISR changes
    Hole(
        "KAFKA-10548, KAFKA-13342",
        "Deletion met a broker that was down.",
        "topic-deletions-not-resumed topic-deletions-not-loaded",
    ),
    Hole(
        "KAFKA-9539",
        "A StopReplica of an earlier life reached the replica of a later one.",
        "lower-leader-epoch",
        "A deletion names a topic id, and nothing takes its place before it is confirmed.",
    ),
    Hole(
        "KAFKA-9946, KAFKA-9499, KAFKA-8294, KAFKA-8237",
        "StopReplica was mistaken or slow.",
        "deletion-answered-undone",
        "What was slow cost time only.",
    ),
    Hole("KAFKA-10314", "A new replica was not placed beside a directory that had failed.", "new-only-once"),
    Hole("KAFKA-9672", "Replicas and ISR shrank in two steps.", "isr-after-replicas removed-followers-kept"),
    Hole("KAFKA-12686, KAFKA-12751", "The outcome of an ISR change overtook a LeaderAndIsr.", "outcome-of-older-epoch"),
    Hole("KAFKA-10794", "An election computed all partitions for every candidate.", why_not=_COST),
    Hole(
        "KAFKA-12835, KAFKA-13132",
        "Brokers missed a topic id that came with an epoch they had.",
        why_not="Every request and every log has an id: there is no older version of the protocol that lacks it.",
    ),
    Hole(
        "KAFKA-14190",
        "A tool dropped a topic's id, and another id took its place.",
        why_not="An id that is missing is derived from the znode's czxid, the same by everybody; and no simulated tool "
        "drops one.",
    ),
    Hole(
        "KAFKA-9189",
        "A broker that stopped asked ZooKeeper, which was gone, who rules.",
        why_not="The agent asks who its metadata says rules; it does not read that in ZooKeeper.",
    ),
    Hole(
        "KAFKA-13225",
        "Metadata of brokers came without that of partitions.",
        "brokers-instead-of-partitions snapshot-onto-the-old",
    ),
    Hole("KAFKA-14140", "Who shuts down was elected, or joined an ISR.", "leaver-elected join-while-leaving"),
    Hole("KAFKA-14144", "The repeat of an ISR change that had succeeded was refused.", "lost-isr-write-is-failure"),
    Hole(
        "KAFKA-14154",
        "A deposed controller answered an ISR change with a fatal error.",
        why_not="Leaders write ISR changes to ZooKeeper; no controller answers them.",
    ),
    Hole(
        "KAFKA-14617",
        "A restarted broker came back into the ISR by what its former life had fetched.",
        "isr-members-unchecked broker-epoch-ignored",
    ),
    Hole(
        "KAFKA-13790",
        "A newer version in the same leader epoch was refused, or restarted fetchers.",
        "equal-epoch-is-stale",
    ),
    # What was never a ticket or never mended, and what cost time
    Hole("no ticket: error responses", "What brokers refused was not sent again.", "errors-forgotten silence-is-done"),
    Hole(
        "no ticket: reconcile",
        "Nobody knew what brokers had acknowledged.",
        "errors-forgotten silence-is-done answered-before-done",
    ),
    Hole(
        "no ticket: NODEEXISTS",
        "A state znode that a lost reply had hidden left its partition new.",
        "lost-reply-is-failure lost-reply-is-conflict existing-state-unread",
    ),
    Hole(
        "no ticket: createTopic",
        "A topic's settings and its assignment were two writes.",
        why_not="Both are one multi; a topic without its settings is a wrong size of segments, which no rule can tell.",
    ),
    Hole(
        "no ticket: last member",
        "Who stayed in the ISR when several died hung on an order of iteration.",
        why_not="All who die in one event leave in one write, in the order of the ISR.",
    ),
    Hole(
        "no ticket: elections of New partitions",
        "Elections of partitions without a state failed, and failovers with them.",
        why_not="That there may be no state is in the type, which mypy checks; elections that are asked for name all.",
    ),
    Hole("no ticket: shutting down", "That a broker shuts down was never forgotten.", "leaving-for-ever"),
    Hole(
        "no ticket: log directory events",
        "A second failed directory put replicas of the first back online.",
        why_not="No event of a directory puts replicas online: only a new incarnation of the broker does.",
    ),
    Hole(
        "no ticket: Online to Ineligible", "Replicas of halted deletions stayed online.", "topic-deletions-not-resumed"
    ),
    Hole(
        "no ticket: equal leader epoch",
        "A lost LeaderAndIsr could not be repeated: its epoch was known.",
        "equal-epoch-is-stale lost-role-stays-lost failed-step-left-out",
    ),
    Hole("no ticket: removed replicas", "Reassignment ended without a leader.", "reassigned-too-soon"),
    Hole("no ticket: refused StopReplica", "A refused StopReplica left a deletion waiting.", "errors-forgotten"),
    Hole(
        "no ticket: znode edits",
        "Edits of znodes that ask for reassignments or elections were missed.",
        "asked-edits-missed",
    ),
    Hole(
        "no ticket: removeTopic",
        "A topic deleted and made anew between two reads was missed.",
        "created-anew-unnoticed",
    ),
    Hole("no ticket: failover", "Failovers and metadata cost as much as there are partitions.", why_not=_COST),
    Hole("no ticket: slow calls", "One slow write held up shutdowns and the loss of the session.", why_not=_COST),
    Hole(
        "KAFKA-4959, KAFKA-6517, KAFKA-6879, KAFKA-4360",
        "Threads that closed each other's parts waited for each other for ever.",
        why_not="ZooKeeper's callbacks only put events; a run whose threads wait for each other fails as it is.",
    ),
    Hole("KAFKA-7537, KAFKA-7299", "All metadata went to all brokers at every change.", why_not=_COST),
    Hole(
        "KAFKA-9198, KAFKA-9235",
        "Who waited at a replica was not told that it had stopped.",
        "acknowledge-deposed role-untold stop-untold",
    ),
    Hole(
        "KAFKA-7987",
        "The ZooKeeper client gave up after it could not authenticate.",
        why_not="The session's wire code, with what it authenticates by, is not simulated.",
    ),
    Hole(
        "KAFKA-10189, KAFKA-10193",
        "A metric stood still; calls of a deposed controller were never answered.",
        "callers-unanswered",
        "No metric is simulated.",
    ),
    Hole("KIP-343, KIP-455", "Reassignments were cancelled by hand.", "reassigned-too-soon asked-reassignments-stay"),
    Hole("KAFKA-8325", "Producers split batches wrongly.", why_not="It is the client's."),
)
"""In the order of tests/ledger/controller.txt."""
