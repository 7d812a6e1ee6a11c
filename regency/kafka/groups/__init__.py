"""What is known of consumer groups outside the coordinator: the records of `__consumer_offsets`, Kafka's to the letter.

`records` reads and writes keys and values; `placement` says in which partition a group is kept; `subscriptions` reads
from a consumer's metadata which topics it wants.

Comes in:   bytes of a record, or values to write.
Goes out:   values, or GroupRecordMalformed, which says at which byte of what.
Imports:    `regency.model` and the varints of `regency.kafka.decoder`.
Is used by: the coordinator of groups, the command line.
"""
