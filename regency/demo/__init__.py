"""The demonstration: records through a cluster whose ruling broker is killed on the way, and the proof that none is
lost.

Comes in:   a running `regency.Cluster`.
Goes out:   a report with what was lost, duplicated, unavailable, and a timeline of what the cluster decided.
Hands out:  `demo.run_demo`; `flights`, the records; `workload` and `ledger`, which write carefully and count.
Imports:    clients and history.
Prints:     nothing; a watcher hears of what happens.
Rule:       the ledger is kept apart from what is proven with it.
Tests:      tests/unit/chaos, and `./dev demo`.
"""
