"""The job `cluster-history`: decision records of all hosts into tables and a report (docs/pipeline-cluster-history.md).

Everything is DataFrames: no record comes to the driver, and no rule is a loop over records. Modules import Spark when
they are imported, so only a job that runs imports them.
"""
