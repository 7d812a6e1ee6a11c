"""The job `flights`: delays of flights from a topic, as a stream, exactly once into files.

Comes in:   the demo's records from the cluster, in micro-batches.
Goes out:   delays by airport and hour, counts of each batch (`batch_counts`).
Hands out:  `job`.
Imports:    the connector through Spark, and `pipeline.files`.
Files:      delays is the query, and how late records may be.
Rule:       a batch that is repeated writes the same files.
Tests:      tests/spark.
"""
