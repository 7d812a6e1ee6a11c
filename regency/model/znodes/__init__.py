"""Content of every znode, as Kafka 0.8 to 3.9 writes and reads it: the place to import codecs from.

`encode_X` gives the bytes to write, `decode_X(path, data)` reads all versions or raises ZnodeMalformed(path, reason),
whatever the bytes are. Data a znode does not have is b"". Unknown JSON fields are skipped, and kept when a topic,
config or broker znode is written again with its `previous` content.
"""

from __future__ import annotations

from regency.model.znodes.admin import (
    decode_asked_moves,
    decode_config,
    decode_config_change,
    decode_isr_change,
    decode_log_dir_event,
    decode_preferred_election,
    encode_asked_moves,
    encode_config,
    encode_config_change,
    encode_isr_change,
    encode_log_dir_event,
    encode_preferred_election,
)
from regency.model.znodes.brokers import (
    NO_LOSS,
    ProducerIdBlock,
    decode_broker,
    decode_cluster_id,
    decode_controller,
    decode_controller_epoch,
    decode_incarnation,
    decode_process,
    decode_producer_id_block,
    encode_broker,
    encode_cluster_id,
    encode_controller,
    encode_controller_epoch,
    encode_incarnation,
    encode_producer_id_block,
    new_cluster_id,
)
from regency.model.znodes.topics import decode_state, decode_topic, encode_state, encode_topic

__all__ = [
    "NO_LOSS",
    "ProducerIdBlock",
    "decode_asked_moves",
    "decode_broker",
    "decode_cluster_id",
    "decode_config",
    "decode_config_change",
    "decode_controller",
    "decode_controller_epoch",
    "decode_incarnation",
    "decode_isr_change",
    "decode_log_dir_event",
    "decode_preferred_election",
    "decode_process",
    "decode_producer_id_block",
    "decode_state",
    "decode_topic",
    "encode_asked_moves",
    "encode_broker",
    "encode_cluster_id",
    "encode_config",
    "encode_config_change",
    "encode_controller",
    "encode_controller_epoch",
    "encode_incarnation",
    "encode_isr_change",
    "encode_log_dir_event",
    "encode_preferred_election",
    "encode_producer_id_block",
    "encode_state",
    "encode_topic",
    "new_cluster_id",
]
