"""`regency topics`: create, alter, list, describe, delete, change the replication factor.

Comes in:   names, counts, settings, lists of replicas.
Goes out:   requests to the cluster; tables or JSON.
Hands out:  `command.topics`; `making` for commands that need a topic.
Imports:    `asking`; `partitions` for set-rf, which is a reassignment.
Files:      `command` creates, lists and describes; `alter` and `delete` are the other verbs.
Rule:       a command waits until the cluster has done it, unless told otherwise.
Tests:      tests/unit/cli.
"""
