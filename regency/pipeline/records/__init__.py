"""Record batches decoded by numpy, a batch at a time and never record by record in Python.

Comes in:   whole batches of one partition, compressed or not.
Goes out:   columns: offsets, timestamps, keys, values, headers as Arrow arrays.
Hands out:  `partition_records`, which reads a range, and `decoding`.
Imports:    `regency.kafka.record_batch` and the clients that fetch.
Order:      partition_records > decoding > headers > chain, arrow > varints; compression beside them.
Cost:       a batch is checked before it is decoded; memory is bounded by the batch.
Tests:      tests/unit/pipeline, tests/property.
"""
