"""The job `cluster-history`: decision records of all hosts into tables and a report (docs/pipeline-cluster-history.md).

No record but those about brokers and controllers comes to the driver. `lives`, `leaderless`, `absences`, `flapping` and
`days` are rules about states, which `states` gives them, a partition after another; all else is DataFrames. Modules
import Spark when they are imported, so only a job that runs imports them.
"""
