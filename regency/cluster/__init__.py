"""A lab: ZooKeeper and agents as processes of this machine, started, watched, broken and ended.

`cluster.Cluster` is the Python face, over `lab.Lab`, which works on what another program started too. `plan` decides
ports and directories; `state` is what the lab's directory remembers, `record` changes it under a lock. `parts` starts,
signals and ends processes by the rules in `verbs`, with the folder `process`. `guard` ends what its owner left behind.
`logs` merges what they wrote.

Comes in:   a directory, a number of brokers, settings, targets of verbs.
Goes out:   processes, their logs, health (`health`, read in ZooKeeper by `observer`).
Hands out:  Cluster (as `regency.Cluster`), the status and the end of a lab.
Imports:    neither daemon: they are started as programs.
Rule:       any program may end at any line, so what is started is noted before it runs (life.json of the process), and
            by its parent when it ends.
"""
