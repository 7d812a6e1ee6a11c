"""`regency pipeline`: jobs that run on Spark.

Comes in:   options of a job; files; agents' addresses.
Goes out:   tables, reports, and the exit status of the job.
Hands out:  `command.pipeline`, whose commands are loaded when they are called.
Imports:    `regency.pipeline` inside a command only: Spark is an extra, and slow to import.
Shared:     `spark` starts a session and reads its errors (`failures`), `interrupts` ends it in order on Ctrl-C.
Files:      a module per job.
Tests:      tests/unit/cli/pipeline, tests/spark.
"""
