"""Metrics: their names, how they are counted cheaply, and how snapshots become Prometheus' text."""
