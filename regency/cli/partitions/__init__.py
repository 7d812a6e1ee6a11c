"""`regency partitions`: replicas that move, from a plan to its verification.

Comes in:   what is wanted (spread, drain, replication factor), or a plan's file, Kafka's format.
Goes out:   plans with what they cost, reassignments, progress, what is left.
Hands out:  `command.partitions`; `plans` for drain and set-rf.
Imports:    `regency.planning`, which is pure, and `asking`.
Files:      `plans` makes and reports, `plan_execution` executes; `reassignments` is the wire.
Rule:       a plan that is interrupted can be gone on with: its file says what is left.
Tests:      tests/unit/cli, tests/unit/planning.
"""
