"""Processes of this machine: started, found again, signalled, and how each ended.

`spawner` starts a program through `launcher`, which is run as a program itself and notes how its child ended;
`processes` finds and signals processes, also those that another program or a user's hand started; `endings` reads what
was noted and says it in words.

Comes in:   commands, directories, pids with start times.
Goes out:   processes in groups of their own, signals, life.json per process.
Imports:    `regency.cluster.errors`; no other module of the lab.
Rule:       a process is known by pid and start time, never by its pid alone.
"""
