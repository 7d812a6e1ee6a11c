"""The command line `regency`: click commands, data on stdout, words on stderr.

`main` has the list of commands, each loaded when it is called; `context` what all share (the cluster, -o json,
output); `exits` how commands end. A room per subject: lab, cluster, topics, partitions, brokers, data, log, pipeline,
top, verify.

Comes in:   arguments, environment, files of a lab.
Goes out:   lines for people or JSON for programs; an exit status that says what happened.
Imports:    clients, the lab (`regency.cluster`), the demo, the pipeline. Nothing imports this room.
Rules:      no traceback for a mistake of a user; no request without a limit of time; libraries that are slow to import
            are imported inside the command.
"""
