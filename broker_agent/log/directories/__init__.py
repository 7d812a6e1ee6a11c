"""The log directories of an agent: which logs are where, how they are loaded, moved and lost together.

A directory that fails takes its logs offline and no others. A log that moves grows as a future log beside the old
one.

Comes in:   configured directories, and what an earlier process left in them.
Goes out:   loaded logs, checkpoints of recovery points and log starts, the list of failed directories.
Hands out:  LogManager; `log_loading.open_directories`, which recovers on several threads.
Imports:    everything else of `log`; is imported by `replication` and `assembly`.
Order:      log_cleaning > log_manager > log_loading, future_logs > duplicates, directory_logs > continuity.
"""
