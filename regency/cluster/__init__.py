"""A lab: ZooKeeper and agents as processes of this machine, started, watched, broken and ended.

`cluster.Cluster` is the Python face; `plan` decides ports and directories, `state` remembers them in the lab's
directory,
`spawner` and `processes` start and find processes, `guard` ends what its parent left behind.

Comes in:   a directory, a number of brokers, settings.
Goes out:   processes, their logs, health (`health`, read in ZooKeeper by `observer`).
Hands out:  Cluster (as `regency.Cluster`), the status and the end of a lab.
Imports:    neither daemon: they are started as programs.
"""
