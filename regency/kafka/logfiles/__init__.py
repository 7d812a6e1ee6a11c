"""Names and formats of the files of a log directory, Kafka's to the letter.

`file_names` has names of directories, segments and checkpoints; `checkpoints` the text files with offsets, epochs
and
ids, and how a file is replaced whole; `producer_snapshot` the snapshot of producers.

Comes in:   a disk (`regency.runtime.disk`) and a path.
Goes out:   values, or CheckpointMalformed, which names the path and what is wrong.
Imports:    the disk and `regency.model`.
Is used by: the agent's log and `regency log dump`. Indexes are written by `broker_agent.log.segments`.
"""
