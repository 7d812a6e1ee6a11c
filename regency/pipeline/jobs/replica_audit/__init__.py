"""The job `replica-audit`: every replica of every partition compared, on as many executors as there are.

Comes in:   assignments, and where each replica begins and ends.
Goes out:   what differs or is damaged, as rows and as a report.
Hands out:  `job`.
Imports:    `regency.clients.replicas`, which compares; as `regency verify replicas` does.
Order:      plan on the driver, read and compare in tasks, merge on the driver.
Rule:       records stay where they were read; only what differs travels.
Tests:      tests/spark, tests/unit/pipeline.
"""
