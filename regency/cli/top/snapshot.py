"""What `regency top` shows at one moment, and prints with -o json."""

from __future__ import annotations

import msgspec

from regency.cli.asking.rates import CatchUp


class ControllerLine(msgspec.Struct, frozen=True, rename={"epoch": "controller_epoch", "zookeeper": "in_contact"}):
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


class BrokerLine(msgspec.Struct, frozen=True, rename={"failure": "last_failure"}):
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
    bytes_in_per_s: float | None = None
    """From producers; None where its agent does not tell."""
    bytes_out_per_s: float | None = None
    """To consumers."""
    lag: int | None = None
    """Records that its replicas are behind, as their leaders know; None where no leader tells."""
    lag_partial: bool = False
    """Whether it may be more: a leader does not tell, or has not heard of a replica."""
    catch_up: CatchUp | None = None
    """Of one with a replica out of sync among the worst."""
    connections: int | None = None
    """Open ones, of clients and of brokers."""
    refused_per_s: dict[str, float] | None = None
    """Produces it refuses for want of replicas or of a disk, by error; None where its agent does not tell."""


class PartitionCounts(msgspec.Struct, frozen=True, rename={"offline": "leaderless", "healthy": "all_in_sync"}):
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


class TroubleLine(msgspec.Struct, frozen=True, rename={"reassigning": "being_reassigned"}):
    """A partition that is not well: `kind` is offline, under_min_isr or under_replicated; `leader` may be None."""

    topic: str
    partition: int
    kind: str
    leader: int | None
    replicas: list[int]
    isr: list[int]
    reassigning: bool
    lags: list[int | None] = []
    """Records that each of `replicas` is behind the leader; None where it, or the leader, does not tell."""
    catch_up: CatchUp | None = None
    """Of the replica out of sync that takes longest."""


class GroupLine(msgspec.Struct, frozen=True):
    """A consumer group. `lag`: records it is behind in all that it has committed; None where no leader tells."""

    group: str
    coordinator: int
    members: int
    lag: int | None
    lag_partial: bool
    """Whether it may be more: not all leaders tell."""
    catch_up: CatchUp


class DecisionLine(msgspec.Struct, frozen=True):
    """What the controller decided, and why; `time_ms` since 1970. `told` is all of it in words, as history has them."""

    time_ms: int
    controller_epoch: int
    number: int
    subject: str
    was: str
    decided: str
    why: str
    told: str


class EventLine(msgspec.Struct, frozen=True):
    """What was decided because of one cause, in a sentence; `time_ms` since 1970."""

    time_ms: int
    controller_epoch: int
    number: int
    told: str


_NAMES = {"servers": "bootstrap_servers", "controller": "ruling", "partitions": "totals"}


class Snapshot(msgspec.Struct, frozen=True, rename=_NAMES):
    """All of it. Where no controller answers now: what was known last, `age_s` seconds ago, and why in `notes`."""

    servers: str
    time_ms: int
    notes: list[str] = []
    age_s: float | None = None
    """Of what follows; None: nothing is known."""
    controller: ControllerLine | None = None
    brokers: list[BrokerLine] = []
    partitions: PartitionCounts | None = None
    records_per_s: float | None = None
    bytes_in_per_s: float | None = None
    bytes_out_per_s: float | None = None
    """Sums over the brokers that tell; None where none does."""
    lag: int | None = None
    worst: list[TroubleLine] = []
    groups: list[GroupLine] = []
    """The one that is most behind first."""
    decisions: list[DecisionLine] = []
    """Oldest first."""
    events: list[EventLine] = []
    """The same by event, oldest first; many more decisions may stand behind them."""
    focus: str = ""
    """The topic whose partitions are in `focused`, all of them; empty: none was asked for."""
    focused: list[TroubleLine] = []
    focus_in_per_s: float | None = None
    focus_out_per_s: float | None = None
    """Bytes of that topic, from producers and to consumers."""
