"""Where things are in ZooKeeper: the only place in which a path is spelled. Paths are Kafka's, below the chroot."""

from __future__ import annotations

from typing import Final

from regency.model.ids import BrokerId, TopicPartition

CONTROLLER: Final = "/controller"
"""Ephemeral of the ruling controller."""

CONTROLLER_EPOCH: Final = "/controller_epoch"
"""Counts the controllers there have been; its version fences every write of a controller."""

BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
BROKER_SEQUENCE: Final = "/brokers/seqid"
INCARNATIONS: Final = "/brokers/incarnations"
"""Ours alone: one persistent znode per broker, written by each of its registrations."""

ADMIN: Final = "/admin"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"

ISR_CHANGE_NOTIFICATION: Final = "/isr_change_notification"
LOG_DIR_EVENT_NOTIFICATION: Final = "/log_dir_event_notification"

CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_TOPICS: Final = "/config/topics"
CONFIG_BROKERS: Final = "/config/brokers"
EVERY_BROKER: Final = "<default>"
"""Name under which the settings of all brokers stand; it is literal."""
DEFAULT_BROKER_CONFIG: Final = f"{CONFIG_BROKERS}/{EVERY_BROKER}"
"""Settings of all brokers that have none of their own."""

CLUSTER_ID: Final = "/cluster/id"
PRODUCER_IDS: Final = "/latest_producer_id_block"

PERSISTENT_PARENTS: Final[tuple[str, ...]] = (
    "/consumers",
    "/brokers",
    BROKER_IDS,
    TOPICS,
    BROKER_SEQUENCE,
    INCARNATIONS,
    CONFIG,
    CONFIG_CHANGES,
    CONFIG_TOPICS,
    CONFIG_BROKERS,
    "/config/clients",
    "/config/users",
    "/config/ips",
    ADMIN,
    DELETE_TOPICS,
    "/cluster",
    ISR_CHANGE_NOTIFICATION,
    LOG_DIR_EVENT_NOTIFICATION,
    PRODUCER_IDS,
)
"""Created by every broker at its start where they are missing, with no data, in this order: parents before children."""


def broker(broker_id: BrokerId) -> str:
    """Registration of a broker."""
    return f"{BROKER_IDS}/{broker_id}"


def incarnation(broker_id: BrokerId) -> str:
    """Written together with each registration of a broker: its mzxid is the broker epoch."""
    return f"{INCARNATIONS}/{broker_id}"


def topic(name: str) -> str:
    """Assignment of a topic."""
    return f"{TOPICS}/{name}"


def topic_partitions(name: str) -> str:
    """Parent of a topic's partitions; no data."""
    return f"{TOPICS}/{name}/partitions"


def topic_partition(partition: TopicPartition) -> str:
    """Parent of a partition's state; no data."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}"


def partition_state(partition: TopicPartition) -> str:
    """Leader and ISR of a partition."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}/state"


def topic_config(name: str) -> str:
    """Settings of a topic that differ from the brokers'."""
    return f"{CONFIG_TOPICS}/{name}"


def broker_config(broker_id: BrokerId) -> str:
    """Settings of one broker that differ from its file."""
    return f"{CONFIG_BROKERS}/{broker_id}"


def config_of(entity: str) -> str:
    """Settings of an entity as notifications name it, such as `topics/t` or `brokers/<default>`."""
    return f"{CONFIG}/{entity}"


def delete_topic(name: str) -> str:
    """Marker that asks for a topic's deletion."""
    return f"{DELETE_TOPICS}/{name}"


def isr_change_prefix() -> str:
    """Path to create a sequential ISR change notification with."""
    return f"{ISR_CHANGE_NOTIFICATION}/isr_change_"


def log_dir_event_prefix() -> str:
    """Path to create a sequential log directory notification with."""
    return f"{LOG_DIR_EVENT_NOTIFICATION}/log_dir_event_"


def config_change_prefix() -> str:
    """Path to create a sequential config change notification with."""
    return f"{CONFIG_CHANGES}/config_change_"


def parse_topic(path: str) -> str | None:
    """The topic whose assignment stands at `path`, or None where it is another kind of path."""
    parent, _, name = path.rpartition("/")
    return name if parent == TOPICS and name else None


def parse_partition_state(path: str) -> TopicPartition | None:
    """The partition whose state stands at `path`, or None where it is another kind of path."""
    parts = path.split("/")
    if len(parts) != 7 or not path.startswith(TOPICS + "/") or parts[4] != "partitions" or parts[6] != "state":
        return None
    number = parse_number(parts[5])
    return TopicPartition(parts[3], number) if parts[3] and number is not None else None


def parse_broker(path: str) -> BrokerId | None:
    """The broker whose registration stands at `path`, or None where it is another kind of path."""
    parent, _, name = path.rpartition("/")
    number = parse_number(name) if parent == BROKER_IDS else None
    return None if number is None else BrokerId(number)


def parse_number(name: str) -> int | None:
    """The number that names a child of /brokers/ids or of `partitions`, 0 to 2**31 - 1; None: it is none."""
    if not name.isascii() or not name.isdigit() or len(name) > 10 or (name[0] == "0" and name != "0"):
        return None
    number = int(name)
    return number if number < 2**31 else None
