"""Replicas between log directories of one agent: moved, copied, described.

A move copies into a future log like a follower of the replica itself, throttled, and swaps when it has caught up.

Comes in:   AlterReplicaLogDirs, DescribeLogDirs, failures of directories.
Goes out:   future logs, the swap, descriptions.
Hands out:  DirectoryMoves and the descriptions of directories.
Imports:    `partition`, `hosting` and `regency.broker_agent.log`.
Threads:    the data loop; copies are done in slices of the worker.
"""
