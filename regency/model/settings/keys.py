"""What there is to say about a key of server.properties; the keys of topics. Import from `regency.model.settings`."""

from __future__ import annotations

from typing import Final

import msgspec

from regency.model.settings.values import Boolean, Kind, ListOf, Number, Real, ReplicaList, Text, long

NO_LIMIT = "-1: without limit"
SYSTEM_DEFAULT = "-1: the operating system's default"
COMPRESSION = Text(("producer", "uncompressed", "zstd", "lz4", "snappy", "gzip"))
TIMESTAMP_TYPE = Text(("CreateTime", "LogAppendTime"))
CLEANUP_POLICY = ListOf(("delete", "compact"))
THROTTLED = ReplicaList()


class Key(msgspec.Struct, frozen=True):
    """A key of server.properties, as an annotation of the attribute of BrokerSettings that it sets."""

    kind: Kind
    doc: str
    unit: str = ""
    """Empty for counts, names and switches."""
    name: str = ""
    """Where none is given: the attribute's, with dots."""
    default: str = ""
    """Told where the attribute's is not the key's, and read where a file says nothing."""
    required: bool = False
    whole: bool = True
    """Whether the key's value is the attribute's; else it is one of several from which that is made."""
    attribute: str = ""
    """Attribute of BrokerSettings; taken from where the key stands."""

    def at(self, attribute: str) -> Key:
        """The key, standing at that attribute."""
        return msgspec.structs.replace(self, attribute=attribute, name=self.name or attribute.replace("_", "."))

    @property
    def field(self) -> str | None:
        """Attribute of BrokerSettings that is this key's value, if there is one."""
        return self.attribute if self.whole else None


BOOLEAN = Boolean()
POSITIVE = Number(1)
NATURAL = Number()
TEXT = Text()
LIST = ListOf()


HTTP_PORT = Number(-1, 65535, "-1: not served; 0: any free one")


TOPIC_KEYS: Final[dict[str, tuple[Kind, bool]]] = {
    "segment.bytes": (Number(14), True),
    "segment.ms": (long(1), True),
    "segment.jitter.ms": (long(), True),
    "segment.index.bytes": (Number(4), True),
    "index.interval.bytes": (NATURAL, True),
    "flush.messages": (long(1), True),
    "flush.ms": (long(), True),
    "retention.ms": (long(-1, "-1: for ever"), True),
    "retention.bytes": (long(-1, NO_LIMIT), True),
    "file.delete.delay.ms": (long(), True),
    "max.message.bytes": (NATURAL, True),
    "cleanup.policy": (CLEANUP_POLICY, True),
    "min.insync.replicas": (POSITIVE, True),
    "unclean.leader.election.enable": (BOOLEAN, True),
    "message.timestamp.type": (TIMESTAMP_TYPE, True),
    "compression.type": (COMPRESSION, True),
    "preallocate": (BOOLEAN, True),
    "delete.retention.ms": (long(), True),
    "min.cleanable.dirty.ratio": (Real(0, 1), True),
    "min.compaction.lag.ms": (long(), True),
    "max.compaction.lag.ms": (long(1), True),
    "message.format.version": (TEXT, False),
    "message.timestamp.difference.max.ms": (long(), False),
    "message.timestamp.before.max.ms": (long(), False),
    "message.timestamp.after.max.ms": (long(), False),
    "message.downconversion.enable": (BOOLEAN, False),
    "remote.storage.enable": (Text(("false",)), False),
    "local.retention.ms": (long(-2), False),
    "local.retention.bytes": (long(-2), False),
    "leader.replication.throttled.replicas": (THROTTLED, True),
    "follower.replication.throttled.replicas": (THROTTLED, True),
}
"""Every key a topic may have: its type, and whether it has an effect, as the attribute of LogConfig named like it."""

WITHOUT_EFFECT: Final[dict[str, tuple[object, str]]] = {
    "compression.type": ("producer", "batches stay as the producer compressed them"),
    "preallocate": (False, "files grow as records are written"),
}
"""Topic keys of LogConfig that no code reads: the only value that has the effect it says, and what happens instead."""

TOPIC_KEY_OF: Final[dict[str, str]] = {
    "compression.type": "compression.type",
    "log.cleanup.policy": "cleanup.policy",
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.flush.interval.messages": "flush.messages",
    "log.flush.interval.ms": "flush.ms",
    "log.index.interval.bytes": "index.interval.bytes",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.preallocate": "preallocate",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.roll.jitter.ms": "segment.jitter.ms",
    "log.roll.ms": "segment.ms",
    "log.segment.bytes": "segment.bytes",
    "log.segment.delete.delay.ms": "file.delete.delay.ms",
    "message.max.bytes": "max.message.bytes",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""Keys below which topics have theirs, and what they are called for a topic (Kafka's DynamicLogConfig)."""
