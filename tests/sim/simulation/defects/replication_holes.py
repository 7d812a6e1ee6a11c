"""Holes of Kafka's brokers: of safety, of availability and of storage. What must hold at any time `judging` checks."""

from __future__ import annotations

from typing import Final

from simulation.defects.hole import Hole

_TRANSACTIONS: Final = "There are no transactions."
_MOVES: Final = (
    "A log that was moved is compared with what it was (moved-whole), in every eighth schedule that has directories to "
    "move between; tests/sim/test_moves_in_runs.py plants a defect."
)
_NO_LOCKS: Final = "A log belongs to one data loop: nobody looks at it, or takes a lock of it, while it changes."
_COST: Final = "It costs time only, and virtual time does not see what computing costs."

HOLES: Final[tuple[Hole, ...]] = (
    # Safety: records lost, logs that differ
    Hole(
        "KIP-101, KAFKA-1211",
        "Followers cut to their high watermark, or not at all where logs differ.",
        "truncate-to-watermark divergence-unseen epochs-not-cut",
    ),
    Hole(
        "KIP-279, KAFKA-6361",
        "After fast failovers an offset alone did not tell where logs differ.",
        "divergence-by-offset epoch-start-unwritten",
    ),
    Hole(
        "KIP-320, KAFKA-6880, KAFKA-7395",
        "Who leads or follows in another epoch was heard.",
        "fetch-without-epoch watermark-over-unknown append-deposed",
    ),
    Hole("KAFKA-7128", "Who lacked what the epoch began with joined the ISR.", "join-below-epoch-start"),
    Hole("KIP-207", "The end that clients were told went back after a failover.", "end-goes-back"),
    Hole(
        "KIP-966, KAFKA-15583",
        "The last in sync committed alone, lost its tail and led again.",
        "min-insync-unchecked watermark-below-min-insync lossy-last-leads",
    ),
    Hole(
        "KIP-903, KAFKA-14617, KAFKA-15221",
        "A follower that had lost its log counted by what it fetched before.",
        "broker-epoch-ignored isr-members-unchecked kept-members-unchecked",
    ),
    Hole("KIP-841, KAFKA-13916, KAFKA-14140", "Who shut down joined the ISR.", "join-while-leaving leaver-elected"),
    Hole(
        "no ticket: unclean election",
        "Who was elected out of the ISR cut the others short.",
        "unclean-without-leave fetch-without-epoch",
    ),
    Hole("KAFKA-9491", "An emptied log kept a high watermark below its start.", "watermark-not-restarted"),
    Hole(
        "KAFKA-9196",
        "A high watermark remembered a place in a segment that had been rolled.",
        why_not="A high watermark is an offset only; its place is looked up when it is needed.",
    ),
    Hole("KAFKA-9807, KAFKA-9838", "The last stable offset came from two reads.", why_not=_TRANSACTIONS),
    Hole("KAFKA-10706", "A cut that dropped nothing kept the epoch at the end.", "epoch-at-end-kept"),
    Hole("KAFKA-12153", "Producers kept what had been cut off.", "producers-not-cut"),
    Hole(
        "KAFKA-13141, KAFKA-14704",
        "Something else was taken from an exchange that says that logs differ.",
        "diverging-fetch-counts watermark-of-diverging",
    ),
    Hole("KAFKA-12996", "That logs differ hid that the offset is below the log start.", "below-start-unseen"),
    Hole("KAFKA-13207", "A fetch was taken in by who leads by now.", "reply-after-removal"),
    Hole("KAFKA-15510", "An empty answer made a follower forget its last epoch.", "epoch-lost-when-idle"),
    Hole(
        "KAFKA-13837, KAFKA-14078",
        "A leader answered a follower that it does not know, or of another epoch, as if all were well.",
        "fetch-without-epoch",
        "Nothing is lost by the first: leader and follower hear of one write, again and again until each confirms it.",
    ),
    Hole("KAFKA-9338", "A fetch session went on with an old leader epoch.", "session-keeps-epoch"),
    Hole(
        "KAFKA-12686, KAFKA-12751, KAFKA-13091",
        "ISR changes met LeaderAndIsr, or the high watermark did not move after them.",
        "outcome-of-older-epoch watermark-not-tried-again lost-isr-write-is-failure",
    ),
    Hole("KAFKA-13254, KAFKA-8334", "Waiters were completed under a partition's lock.", why_not=_NO_LOCKS),
    Hole("KAFKA-9672 (at brokers)", "An ISR had members that were not assigned.", "removed-followers-kept"),
    Hole("KAFKA-10301", "Followers were away for a moment while their list was replaced.", "watermark-alone"),
    Hole("KAFKA-15021", "Every change of the ISR raised the leader epoch.", "isr-change-raises-epoch"),
    Hole(
        "KAFKA-2729",
        "A leader wrote its ISR on a version that had gone by, for ever.",
        "isr-conflict-overwritten lost-isr-write-is-failure",
    ),
    # Availability
    Hole("KAFKA-9769", "The leader epoch was taken before a step that failed.", "failed-step-left-out"),
    Hole(
        "KAFKA-10371, KAFKA-13266", "A fetcher went on where it had been.", "offset-not-read-again reply-after-removal"
    ),
    Hole(
        "KAFKA-9198",
        "Who waited was not told that the replica had stopped.",
        "role-untold stop-untold acknowledge-deposed",
    ),
    Hole("KAFKA-14334", "Consumers waited at followers.", why_not="Consumers read from leaders only."),
    Hole("KAFKA-9654, KAFKA-9750, KAFKA-9263, KAFKA-9087, KAFKA-8362", "A moved log went wrong.", why_not=_MOVES),
    Hole(
        "KAFKA-9617",
        "Followers refused batches above max.message.bytes.",
        why_not="A gap: no simulated batch is near that size; a unit test has followers take larger ones.",
    ),
    Hole(
        "KAFKA-13772",
        "The number of fetchers changed.",
        why_not="It is read at the start, and is one in the simulation.",
    ),
    Hole(
        "KAFKA-12330, KAFKA-9137",
        "Partitions starved in full answers; sessions in use gave way to others.",
        why_not="A gap: no simulated answer and no session cache is full; unit tests have both.",
    ),
    Hole("KAFKA-9731, KAFKA-9952", "High watermarks were told at once, at twice the load.", why_not=_COST),
    Hole("KAFKA-15080", "A metric of lag was stale.", why_not="No metric is simulated."),
    Hole(
        "KAFKA-10223",
        "Consumers gave up at REPLICA_NOT_AVAILABLE.",
        why_not="Clients of today go on at it, and the simulated ones behave as these.",
    ),
    Hole("KAFKA-13972", "A StopReplica of the same leader epoch was refused.", "stop-of-equal-epoch-refused"),
    Hole(
        "KAFKA-1647",
        "High watermarks of partitions without a known leader were dropped from the checkpoint.",
        "watermarks-early watermarks-lost",
    ),
    Hole(
        "KAFKA-8392, KAFKA-16452",
        "Metrics leaked; a high watermark was looked up below the first segment.",
        why_not="No metric is simulated, and no place is looked up for a high watermark.",
    ),
    # Storage and recovery
    Hole(
        "KAFKA-10471, KAFKA-10723, KAFKA-15375",
        "A directory counted as cleanly closed that was not.",
        "clean-marker-kept always-clean marker-in-spite-of-failure",
    ),
    Hole("KAFKA-10101", "The recovery point rose without a sync.", "never-synced"),
    Hole(
        "KAFKA-13603",
        "An empty segment without an index was taken for damage.",
        why_not="Nothing is lost by it; an index that is not there is made anew, which unit tests show.",
    ),
    Hole("KAFKA-10778", "A log went on behind a torn write.", "failure-ignored"),
    Hole(
        "KAFKA-16541, KAFKA-15046",
        "The epoch file on the disk was older than what the recovery point says.",
        "epochs-not-read epochs-not-synced",
    ),
    Hole("KAFKA-12964", "A late removal took a new file of the same name.", "removed-by-name"),
    Hole("KAFKA-12875, KAFKA-12981", "A log without segments, or half of a pair, was seen.", why_not=_NO_LOCKS),
    Hole("KAFKA-3968", "The name of a new file was lost.", "names-not-synced"),
    Hole("KAFKA-16073", "Segments were gone before the log start was raised.", "start-after-drop"),
    Hole("KAFKA-9144", "Coordinator epochs went back in a log.", why_not=_TRANSACTIONS),
    Hole("KAFKA-7190", "Producers were forgotten with their records.", "producers-expire-with-records"),
    Hole(
        "no ticket: producers of a log that begins anew",
        "A follower that began anew at its leader's log start did not know who had produced what is below.",
        "producers-not-told",
    ),
    Hole("no ticket: truncation", "A recovery point stood above rewritten data.", "cut-not-checkpointed"),
    Hole(
        "no ticket: log start in a batch",
        "A follower met a batch that begins below the log start.",
        why_not="DeleteRecords is not served, and retention drops whole segments: logs begin where batches do.",
    ),
)
"""In the order of tests/ledger/replication.txt."""
