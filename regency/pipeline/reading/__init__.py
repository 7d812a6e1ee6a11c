"""The reader of `format("regency")`: batches and streams of a topic as rows.

`options` reads what the user said; `cluster_view` looks where topics end; `planning` cuts ranges into partitions of
Spark; `stream_reader` decides how far a micro-batch goes; `batch_reader` takes filters on partition, offset and time.

Comes in:   options, offsets of a checkpoint, filters.
Goes out:   ranges for tasks, then Arrow batches.
Hands out:  batch_reader, stream_reader, the schema.
Imports:    `records` for decoding, `regency.clients` for the wire.
Runs:       planning on the driver, reading in tasks.
"""
