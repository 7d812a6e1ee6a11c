"""Where replicas go: pure planning, for new topics and for moves.

Comes in:   brokers with racks, assignments, sizes, what is wanted.
Goes out:   assignments, and the order of moves; a plan's file is Kafka's.
Hands out:  placement (new partitions), plans (moves), leaders (who should lead), spread (how even it is).
Imports:    `regency.model`. No clock, no I/O, no unsorted iteration: equal input, equal plan.
Is used by: the controller for new topics, the command line for plans.
Cost:       a min-cost flow for leaders; placement is linear in the replicas.
Tests:      tests/unit/planning, tests/property.
"""
