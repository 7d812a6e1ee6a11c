"""Kafka's protocol and formats, for everybody who speaks or reads them.

`codec` has every message, from kafka-python's schemas; `decoder` decodes ours fast and bounded; `peer` is a blocking
connection; `record_batch` the batch format; `fetching` a fetch as facts and on the wire; `logfiles` names and
formats of log files; `admin_answers` the rows of answers that the controller or an agent gives.

Comes in:   bytes, or values to encode.
Goes out:   values, or bytes; `decoder` has errors for malformed bytes; no input costs more than its size allows.
Imports:    `regency.model` and `regency.runtime`; only this room and the command line import kafka-python.
Is used by: the agent's listener and fetchers, the controller's `admin`, the clients, the command line, the pipeline.
"""
