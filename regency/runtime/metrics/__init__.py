"""Metrics: their names, how they are counted cheaply, and how snapshots become families.

Comes in:   counts and times, from hot paths (`recent`).
Goes out:   families of prometheus_client.
Hands out:  `families`, `recent.RecentTimes`, the tables of names.
Imports:    nothing of ours but `regency.model`.
Names:      `table_agent`, `table_controller` and `table` have every metric with its help; docs are made of
            them.
Rule:       a metric that is not in a table cannot be exported.
Tests:      tests/unit/metrics.
"""
