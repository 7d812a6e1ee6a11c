"""What `regency top` shows at one moment, as `-o json` prints it. Values only."""

from __future__ import annotations

import msgspec


class ControllerLine(msgspec.Struct, frozen=True):
    """The controller that rules. Times in seconds; `ruling_s` and `failover_s` None where it is too old to tell."""

    broker: int
    epoch: int
    state: str
    queued: int | None = None
    ruling_s: float | None = None
    failover_s: float | None = None
    """How long it took to take over."""
    zookeeper: bool | None = None
    """Whether it is in contact with ZooKeeper."""


class BrokerLine(msgspec.Struct, frozen=True):
    """A broker. `state`: live, silent, leaving, dead. What it reported is None while it has not."""

    broker: int
    state: str
    address: str | None = None
    rules: bool = False
    leads: int | None = None
    follows: int | None = None
    offline_replicas: int | None = None
    records_per_s: float | None = None
    """Growth of the logs it leads, over the last seconds."""
    disk_used: float | None = None
    """Of the fullest volume of its log directories, 0 to 1."""
    unacknowledged: int = 0
    waiting_s: float = 0.0
    """How long the oldest of what it was sent waits for its acknowledgement."""
    failure: str | None = None
    """Why it did not take what it was sent last."""


class PartitionCounts(msgspec.Struct, frozen=True):
    """Partitions by health; None where the controller is too old to tell, or has not counted all of them yet."""

    topics: int
    partitions: int
    offline: int
    healthy: int | None = None
    under_replicated: int | None = None
    under_min_isr: int | None = None
    reassigning: int | None = None
    topics_in_deletion: int | None = None
    topics_to_count: int = 0


class TroubleLine(msgspec.Struct, frozen=True):
    """A partition that is not well: `kind` is offline, under_min_isr or under_replicated; `leader` may be None."""

    topic: str
    partition: int
    kind: str
    leader: int | None
    replicas: list[int]
    isr: list[int]
    reassigning: bool


class DecisionLine(msgspec.Struct, frozen=True):
    """What the controller decided, and why; `time_ms` since 1970."""

    time_ms: int
    controller_epoch: int
    number: int
    subject: str
    was: str
    decided: str
    why: str


class Snapshot(msgspec.Struct, frozen=True):
    """All of it. Where nobody can be asked now: what was known last, `age_s` seconds ago, and why in `notes`."""

    servers: str
    time_ms: int
    notes: list[str] = []
    age_s: float | None = None
    """Of what follows; None: nothing is known."""
    controller: ControllerLine | None = None
    brokers: list[BrokerLine] = []
    partitions: PartitionCounts | None = None
    records_per_s: float | None = None
    worst: list[TroubleLine] = []
    decisions: list[DecisionLine] = []
    """Oldest first."""
