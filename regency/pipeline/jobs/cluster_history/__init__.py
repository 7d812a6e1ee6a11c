"""The job `cluster-history`: decisions of all hosts as tables and a report (docs/use/spark-cluster-history.md).

Comes in:   files of decision records, and agents that are asked for theirs (`reading`).
Goes out:   tables and a report (`report`, `page`), published at once, or not at all.
Hands out:  `job.cluster_history`; `summary.Summary`.
How:        `lives`, `leaderless` and `absences` are rules about states, which `states` gives them, a partition after
            another; all else is DataFrames. No record but those about brokers and controllers comes
            to the driver.
Imports:    Spark, when a module other than `summary` is imported: only a job that runs imports them.
Tests:      tests/spark, tests/unit/pipeline; tests/bench has its times for a million decisions.
"""
