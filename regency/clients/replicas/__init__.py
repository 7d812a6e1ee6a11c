"""Reads and compares the replicas of a partition: what followers hold, beside what the leader does.

Comes in:   where replicas are (`assignments`), how fast to read (`pace`).
Goes out:   differences (`comparison`), damaged places (`damages`).
Hands out:  `reading`, which goes through a topic, and the wire to one replica.
Imports:    the clients around it and `regency.kafka.fetching`.
Used by:    `regency verify replicas` and the pipeline's replica audit.
How:        as a debugging consumer (replica id -2), each replica up to its own high watermark.
Tests:      tests/unit/clients.
"""
