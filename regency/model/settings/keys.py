"""The keys of server.properties: for each its type, range, unit and meaning. Defaults stand in `BrokerSettings`."""

from __future__ import annotations

from typing import Final

import msgspec

from regency.model.settings.values import INT_MAX, Boolean, Kind, ListOf, Number, Real, ReplicaList, Text, long

NO_LIMIT = "-1: without limit"
SYSTEM_DEFAULT = "-1: the operating system's default"
COMPRESSION = Text(("producer", "uncompressed", "zstd", "lz4", "snappy", "gzip"))
TIMESTAMP_TYPE = Text(("CreateTime", "LogAppendTime"))
CLEANUP_POLICY = ListOf(("delete", "compact"))
THROTTLED = ReplicaList()


class Key(msgspec.Struct, frozen=True):
    """A key of server.properties."""

    name: str
    kind: Kind
    unit: str
    """Empty for counts, names and switches."""
    doc: str
    attribute: str | None = ""
    """Attribute of BrokerSettings: empty for the key's name with underscores, None where several keys make one."""
    default: str = ""
    """Told where there is no attribute to read it from, and read where a file says nothing."""
    required: bool = False

    @property
    def field(self) -> str | None:
        """Attribute of BrokerSettings that is this key's value, if there is one."""
        return self.name.replace(".", "_") if self.attribute == "" else self.attribute


_BOOLEAN = Boolean()
_POSITIVE = Number(1)
_NATURAL = Number()
_TEXT = Text()
_LIST = ListOf()

_IDENTITY = (
    Key(
        "broker.id",
        Number(0, INT_MAX, "ids are not generated"),
        "",
        "Number of this broker, unlike every other's.",
        required=True,
    ),
    Key("broker.rack", _TEXT, "", "Rack or zone of this broker: replicas of a partition are spread over racks."),
)

_LISTENERS = (
    Key(
        "listeners",
        _LIST,
        "",
        "Where to listen, NAME://host:port separated by commas. No host: every interface. Port 0: any free one. "
        "May place the two gRPC listeners too.",
        None,
        "PLAINTEXT://:9092",
    ),
    Key(
        "advertised.listeners",
        _LIST,
        "",
        "What clients and brokers shall connect to, where it differs from `listeners`. Port 0: the bound one.",
        None,
    ),
    Key(
        "listener.security.protocol.map",
        _LIST,
        "",
        "Security protocol of each listener, NAME:PROTOCOL separated by commas. Only PLAINTEXT is supported.",
        None,
        "PLAINTEXT:PLAINTEXT",
    ),
    Key(
        "inter.broker.listener.name", _TEXT, "", "The Kafka listener that other brokers fetch from.", None, "PLAINTEXT"
    ),
    Key(
        "security.inter.broker.protocol",
        Text(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
        "",
        "Another way to name the listener that other brokers fetch from: the one named like this protocol.",
        None,
        "PLAINTEXT",
    ),
    Key("control.plane.listener.name", _TEXT, "", "The gRPC listener on which controllers reach this agent."),
    Key(
        "regency.controller.listener.name",
        _TEXT,
        "",
        "The gRPC listener on which agents reach this agent's controller process.",
        "controller_listener_name",
    ),
    Key("socket.send.buffer.bytes", Number(-1, INT_MAX, SYSTEM_DEFAULT), "bytes", "Send buffer of a client's socket."),
    Key("socket.receive.buffer.bytes", Number(-1, INT_MAX, SYSTEM_DEFAULT), "bytes", "Receive buffer of a client's."),
    Key("socket.listen.backlog.size", _POSITIVE, "", "Connections the operating system keeps waiting to be accepted."),
    Key(
        "socket.request.max.bytes",
        _POSITIVE,
        "bytes",
        "Largest request that is read; a larger one ends its connection.",
    ),
    Key(
        "queued.max.request.bytes",
        long(-1, "-1: no bound"),
        "bytes",
        "Requests that have not come in whole, over all connections; where they are more, large ones are received one "
        "after another, and slow ones end their connections.",
    ),
    Key("max.connections", _NATURAL, "", "Connections at one time, over all listeners."),
    Key("max.connections.per.ip", _NATURAL, "", "Connections at one time from one address."),
    Key("connections.max.idle.ms", long(-1, "-1: never"), "ms", "A connection idle for this long is closed."),
    Key("request.timeout.ms", _POSITIVE, "ms", "How long a broker waits for the answer of another one."),
)

_ZOOKEEPER = (
    Key("zookeeper.connect", _TEXT, "", "Servers of the ensemble, host:port,host:port, and a chroot.", required=True),
    Key("zookeeper.session.timeout.ms", _POSITIVE, "ms", "Silence after which ZooKeeper declares this broker dead."),
    Key(
        "zookeeper.connection.timeout.ms",
        _POSITIVE,
        "ms",
        "How long to wait at the start for the first session. Default: zookeeper.session.timeout.ms.",
    ),
    Key("zookeeper.set.acl", _BOOLEAN, "", "Let only this identity change the znodes it creates."),
    Key(
        "regency.zookeeper.digest.auth",
        Text(may_be_empty=True),
        "",
        "user:password to authenticate with at ZooKeeper.",
        "zookeeper_digest_auth",
    ),
)

_TOPICS = (
    Key("num.partitions", _POSITIVE, "", "Partitions of a topic created without a count."),
    Key("default.replication.factor", Number(1, 32767), "", "Replicas of a topic created without a factor."),
    Key("auto.create.topics.enable", _BOOLEAN, "", "Create a topic that a client asks for and that is not there."),
    Key("delete.topic.enable", _BOOLEAN, "", "Allow the deletion of topics."),
    Key("min.insync.replicas", _POSITIVE, "", "In-sync replicas below which a produce with acks=all is refused."),
    Key(
        "unclean.leader.election.enable",
        _BOOLEAN,
        "",
        "Let a replica that is not in sync lead where no other lives: records that were acknowledged are lost.",
    ),
)

_CONTROLLER = (
    Key("auto.leader.rebalance.enable", _BOOLEAN, "", "Give leadership back to preferred replicas from time to time."),
    Key(
        "leader.imbalance.per.broker.percentage",
        Number(0, 100),
        "percent",
        "Share of a broker's preferred partitions led elsewhere above which they are given back.",
    ),
    Key("leader.imbalance.check.interval.seconds", long(1), "s", "How often that share is looked at."),
    Key("controller.socket.timeout.ms", _POSITIVE, "ms", "How long the controller waits for an answer of a broker."),
    Key("controlled.shutdown.enable", _BOOLEAN, "", "Hand leadership over before stopping."),
    Key("controlled.shutdown.max.retries", _NATURAL, "", "How often that is tried again."),
    Key("controlled.shutdown.retry.backoff.ms", long(), "ms", "Pause between two tries."),
)

_REPLICATION = (
    Key("replica.lag.time.max.ms", long(1), "ms", "A follower behind for longer leaves the ISR."),
    Key("replica.fetch.max.bytes", _NATURAL, "bytes", "Bytes a follower asks for of one partition."),
    Key("replica.fetch.response.max.bytes", _NATURAL, "bytes", "Bytes a follower asks for in one request."),
    Key("replica.fetch.min.bytes", _NATURAL, "bytes", "Bytes a leader waits for before it answers a follower."),
    Key("replica.fetch.wait.max.ms", _NATURAL, "ms", "Longest such wait; at most replica.lag.time.max.ms."),
    Key("replica.fetch.backoff.ms", _NATURAL, "ms", "Pause of a follower after an error."),
    Key("replica.socket.timeout.ms", _POSITIVE, "ms", "How long a follower waits for an answer."),
    Key("replica.high.watermark.checkpoint.interval.ms", long(1), "ms", "How often high watermarks go to disk."),
    Key(
        "leader.replication.throttled.rate",
        long(),
        "bytes/s",
        "Most that this broker sends of the replicas in leader.replication.throttled.replicas that are not in sync.",
    ),
    Key(
        "follower.replication.throttled.rate",
        long(),
        "bytes/s",
        "Most that it fetches for the replicas in follower.replication.throttled.replicas that are not in sync.",
    ),
    Key("replication.quota.window.num", _POSITIVE, "", "Windows over which these two rates are averaged."),
    Key("replication.quota.window.size.seconds", _POSITIVE, "s", "Length of such a window."),
    Key(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        long(1),
        "bytes/s",
        "Most that is copied while replicas are moved from one of this broker's log directories to another.",
    ),
    Key("num.replica.fetchers", _POSITIVE, "", "Connections to each leading broker."),
    Key("max.incremental.fetch.session.cache.slots", _NATURAL, "", "Fetch sessions kept (KIP-227)."),
    Key("fetch.max.bytes", Number(1024), "bytes", "Most bytes sent in one answer to a fetch; 10 MiB where it is more."),
    Key("message.max.bytes", _NATURAL, "bytes", "Largest record batch that is accepted."),
)

_LOG = (
    Key("log.dirs", _LIST, "", "Directories of the logs. Default: log.dir.", default="/tmp/kafka-logs"),  # noqa: S108
    Key("log.dir", _TEXT, "", "Directory of the logs, where log.dirs names none.", None, "/tmp/kafka-logs"),  # noqa: S108
    Key(
        "num.recovery.threads.per.data.dir", _POSITIVE, "", "Threads for each directory that recover logs at the start."
    ),
    Key("log.segment.bytes", Number(14), "bytes", "Size at which a new segment is begun."),
    Key("log.roll.ms", long(1), "ms", "Age at which a new segment is begun. Default: log.roll.hours."),
    Key("log.roll.hours", _POSITIVE, "hours", "As log.roll.ms, which counts where both stand.", None, "168"),
    Key("log.roll.jitter.ms", long(), "ms", "Most by which that age is shortened at random."),
    Key("log.roll.jitter.hours", _NATURAL, "hours", "As log.roll.jitter.ms, which counts where both stand.", None, "0"),
    Key(
        "log.retention.ms", long(-1, "-1: for ever"), "ms", "How long records are kept. Default: log.retention.minutes."
    ),
    Key(
        "log.retention.minutes",
        Number(-1, INT_MAX, "-1: for ever"),
        "minutes",
        "As log.retention.ms, which counts where both stand. Default: log.retention.hours.",
        None,
    ),
    Key(
        "log.retention.hours",
        Number(-1, INT_MAX, "-1: for ever"),
        "hours",
        "As log.retention.ms and log.retention.minutes, which count where they stand.",
        None,
        "168",
    ),
    Key("log.retention.bytes", long(-1, NO_LIMIT), "bytes", "Size above which a partition's oldest segments go."),
    Key("log.retention.check.interval.ms", long(1), "ms", "How often that is looked at."),
    Key("log.cleanup.policy", CLEANUP_POLICY, "", "What happens to old segments."),
    Key("log.index.size.max.bytes", Number(4), "bytes", "Largest index of a segment."),
    Key("log.index.interval.bytes", _NATURAL, "bytes", "Bytes of log between two entries of an index."),
    Key("log.flush.interval.messages", long(1), "", "Records after which a log is forced to disk."),
    Key(
        "log.flush.interval.ms",
        long(),
        "ms",
        "Time after which a log is forced to disk. Default: log.flush.scheduler.interval.ms.",
    ),
    Key("log.flush.scheduler.interval.ms", long(1), "ms", "How often it is looked for logs to be forced to disk."),
    Key("log.flush.offset.checkpoint.interval.ms", _POSITIVE, "ms", "How often recovery points go to disk."),
    Key("log.flush.start.offset.checkpoint.interval.ms", _POSITIVE, "ms", "How often log start offsets go to disk."),
    Key("log.segment.delete.delay.ms", long(), "ms", "Time between taking a file out of use and deleting it."),
    Key("log.preallocate", _BOOLEAN, "", "Reserve the space of a segment when it is begun."),
    Key("log.message.timestamp.type", TIMESTAMP_TYPE, "", "Whether records keep their own time or get the broker's."),
    Key("compression.type", COMPRESSION, "", "`producer` keeps batches as they came; nothing else takes effect."),
    Key("producer.id.expiration.ms", _POSITIVE, "ms", "An idempotent producer silent for longer is forgotten."),
    Key("producer.id.expiration.check.interval.ms", _POSITIVE, "ms", "How often that is looked at."),
)

_HTTP_PORT = Number(-1, 65535, "-1: not served; 0: any free one")

_REGENCY = (
    Key(
        "regency.http.port",
        _HTTP_PORT,
        "",
        "Where the agent serves /metrics, /livez, /readyz and /debug/threads.",
    ),
    Key(
        "regency.controller.http.port",
        _HTTP_PORT,
        "",
        "Where the agent's controller process serves the same.",
    ),
    Key(
        "regency.controller.metrics.max.partitions",
        _NATURAL,
        "",
        "Most partitions of a cluster for which its ruling controller exports series of each; 0: none.",
    ),
    Key(
        "regency.http.host",
        Text(may_be_empty=True),
        "",
        "Where both listen. Empty: every interface. Default: host of the listener that other brokers fetch from.",
    ),
    Key(
        "regency.history.dir",
        _TEXT,
        "",
        "Directory of the decision records. Default: the first log directory's name with -history.",
    ),
    Key("regency.isr.notification.quiet.ms", _NATURAL, "ms", "ISR changes are announced when the last is this old,"),
    Key("regency.isr.notification.max.delay.ms", _NATURAL, "ms", "or when the first of them is this old."),
    Key(
        "regency.loop.watchdog.ms",
        Number(0, special="0: never; else 5000 or more"),
        "ms",
        "An agent whose data loop hangs for so long, as in a disk that does not answer, writes all stacks and ends.",
    ),
    Key(
        "regency.queued.max.response.bytes",
        long(1 << 20),
        "bytes",
        "Answers that clients have not read yet, over all connections; where they are more, consumers get no records; "
        "what is read as a follower is held back by nothing but this: at twice as many those that have read nothing "
        "for the longest lose their connections.",
    ),
    Key("regency.report.interval.ms", _POSITIVE, "ms", "Shortest time between two reports to the controller."),
    Key("regency.reconcile.interval.ms", _POSITIVE, "ms", "How often a controller compares reports with its wishes."),
    Key(
        "regency.state.change.log",
        _BOOLEAN,
        "",
        "Log every state change of a partition or replica, and every leader and follower that begins.",
    ),
)

KEYS: Final[dict[str, Key]] = {
    key.name: key
    for key in (*_IDENTITY, *_LISTENERS, *_ZOOKEEPER, *_TOPICS, *_CONTROLLER, *_REPLICATION, *_LOG, *_REGENCY)
}
"""Every key that has an effect, by name."""

TOPIC_KEYS: Final[dict[str, tuple[Kind, bool]]] = {
    "segment.bytes": (Number(14), True),
    "segment.ms": (long(1), True),
    "segment.jitter.ms": (long(), True),
    "segment.index.bytes": (Number(4), True),
    "index.interval.bytes": (_NATURAL, True),
    "flush.messages": (long(1), True),
    "flush.ms": (long(), True),
    "retention.ms": (long(-1, "-1: for ever"), True),
    "retention.bytes": (long(-1, NO_LIMIT), True),
    "file.delete.delay.ms": (long(), True),
    "max.message.bytes": (_NATURAL, True),
    "cleanup.policy": (CLEANUP_POLICY, True),
    "min.insync.replicas": (_POSITIVE, True),
    "unclean.leader.election.enable": (_BOOLEAN, True),
    "message.timestamp.type": (TIMESTAMP_TYPE, True),
    "compression.type": (COMPRESSION, True),
    "preallocate": (_BOOLEAN, True),
    "delete.retention.ms": (long(), False),
    "min.cleanable.dirty.ratio": (Real(0, 1), False),
    "min.compaction.lag.ms": (long(), False),
    "max.compaction.lag.ms": (long(1), False),
    "message.format.version": (_TEXT, False),
    "message.timestamp.difference.max.ms": (long(), False),
    "message.timestamp.before.max.ms": (long(), False),
    "message.timestamp.after.max.ms": (long(), False),
    "message.downconversion.enable": (_BOOLEAN, False),
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
"""Topic keys of LogConfig that nobody reads: the only value that has the effect it says, and what happens instead."""

TOPIC_KEY_OF: Final[dict[str, str]] = {
    "compression.type": "compression.type",
    "log.cleanup.policy": "cleanup.policy",
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
