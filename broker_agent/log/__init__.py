"""One partition's log in Kafka's files.

`log_core` changes files, step by step; `partition_log` says which steps make an append, a truncation, a start at
another offset. `recovery` makes a log whole that a crash left in pieces; `flusher` brings it to the disk.

Comes in:   record batches of clients (checked by `append_rules`) and of leaders; reads; settings of topics.
Goes out:   files through the port `regency.runtime.disk`, results, errors of `errors`.
Hands out:  PartitionLog, and LogManager of `directories`, which has all logs of an agent.
Imports:    formats of `regency.kafka`; nothing of `replication`: leaders and followers are unknown here.
Threads:    owned by the data loop; `background` runs flushes and deletions elsewhere and comes back.
"""
