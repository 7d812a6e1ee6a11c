"""The judge: whether what clients did and saw is what Kafka promises.

Comes in:   operations of clients (`operations`), from files (`files`) or from a simulation.
Goes out:   findings by name (`table` has every anomaly and what settings allow it).
Hands out:  `verdict.judge`; `verdict.judge_piece` for Spark, partition by partition.
Imports:    `regency.model` only: it knows neither cluster nor simulation, so that it cannot be wrong with them.
Order:      verdict > missing, polls, sends > log > findings, parts > table > operations.
Cost:       linear in the operations; a partition is judged on its own.
Tests:      tests/unit/history, and every schedule of the simulation.
"""
