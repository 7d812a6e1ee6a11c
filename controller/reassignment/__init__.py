"""Reassignments (KIP-455): replicas that are added, caught up, and removed, in steps that survive any crash.

`rules` is the pure part; `moves` takes the next step of a reassignment; `requests` takes them in, from
/admin/reassign_partitions and from AlterPartitionReassignments; `replica_deletion` deletes what was left behind.

Comes in:   requests, ISR changes that complete a step, brokers that come and go.
Goes out:   topic znodes with adding and removing replicas, transitions of the machines.
Hands out:  `requests.finish`, the handlers that `routes` names, the events of `events`.
Imports:    the term and the machines; nothing of `topics` or `brokers`, which stand above.
Threads:    the controller's.
"""
