"""The job `cluster-history`: decision records of all hosts into tables and a report (docs/pipeline-cluster-history.md).

No record but those about brokers and controllers comes to the driver. `lives`, `leaderless` and `absences` are rules
about the states of one partition, which `states` gives them, a partition at a time; all else is DataFrames. Modules
import Spark when they are imported, so only a job that runs imports them.
"""
