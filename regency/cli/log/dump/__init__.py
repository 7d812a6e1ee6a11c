"""`regency log dump`: what is in the files of a log, and whether it is sound.

Comes in:   paths of segments, indexes, snapshots, checkpoints; also of Kafka's own brokers.
Goes out:   facts, one line or one JSON object each (`sink`), and what is wrong.
Hands out:  `command.dump`.
Imports:    formats of `regency.kafka`; no daemon: a running agent is not needed, and not disturbed.
Files:      a module per kind of file.
Rule:       nothing is written; a file that grows meanwhile is read as far as it went.
Tests:      tests/unit/cli/dump, on files of this log and of Kafka.
"""
