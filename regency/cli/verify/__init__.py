"""`regency verify replicas`: whether all replicas of a topic hold the same.

Comes in:   topics, a rate, a range of offsets.
Goes out:   what differs, where, and since which offset; an exit status.
Hands out:  `command.verify`.
Imports:    `regency.clients.replicas`, which reads and compares.
Files:      reading asks, report tells; the pipeline's audit shares the report.
Cost:       replicas are read at most at the rate that was asked for.
Tests:      tests/unit/clients, tests/integration/system.
"""
