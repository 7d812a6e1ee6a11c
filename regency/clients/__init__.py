"""Clients of a running cluster that the command line and the pipeline share, on Kafka's protocol.

`cluster_client` finds leaders and asks for metadata and offsets; `partition_reader` reads one partition in a
session;
`controllers` asks the ruling controller over gRPC; `topic_ends` waits for what a topic holds.

Comes in:   addresses, settings of clients (`settings`), what is wanted.
Goes out:   batches and answers; errors of `errors`, which say what to do.
Hands out:  ClusterClient, PartitionReader, ask_controller.
Imports:    `regency.kafka`; neither daemon.
Room:       `replicas` reads every replica of a partition, not only its leader.
"""
