"""Spark reads, writes and audits the cluster: the connector `format("regency")` and the jobs of `regency pipeline`.

`source` is Spark's data source; `reading` its reader, in batches and streams; `sink` its writer; `records` decodes
with numpy; `files` finds and publishes files; `jobs` has a room per job; `session` starts Spark with what it needs.

Comes in:   options of a DataFrame, offsets, rows.
Goes out:   rows, records, tables, reports.
Hands out:  `session.spark_session`, `source.register`, the jobs.
Imports:    clients and what is below; imported by those alone who installed the extra `pipeline`.
Runs:       on drivers and on executors: what a task needs travels with it.
"""
