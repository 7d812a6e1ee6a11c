"""What a run simulates: how many brokers, topics and faults, for how long, under which settings."""

from __future__ import annotations

import random
from functools import cache
from typing import Final, NamedTuple

from regency.model.ids import BrokerId
from regency.model.settings import BrokerSettings
from regency.model.settings.log_config import NEVER, UNLIMITED

SECOND_US: Final = 1_000_000
MINUTE_MS: Final = 60_000

DRILL_EVERY: Final = 4
"""Every so many seeds of the deep profile go through one drill, again and again, with other details each time."""


_UNRECONCILED: Final = DRILL_EVERY // 2
"""What remains of the seeds, divided by `DRILL_EVERY`, of those deep schedules in which nothing is reconciled: what a
reconcile would mend in passing has to come right by itself.
"""

RECONCILE_MS: Final = 4_000

KEYED: Final = 0.1
"""The share of deep schedules without drills in which there is a topic more, whose records have keys."""

GROUPED: Final = 0.45
"""The share of deep schedules without drills in which there are consumer groups: a third of all."""


class TopicShape(NamedTuple):
    """A topic that is created at the start."""

    name: str
    partitions: int
    replication_factor: int
    min_insync: int
    unclean: bool = False
    """Whether a leader may be elected from outside the ISR."""
    configs: tuple[tuple[str, str], ...] = ()
    """More settings."""
    is_keyed: bool = False
    """Whether records have keys, and brokers compact them."""


class Storage(NamedTuple):
    """How brokers keep their logs."""

    directories: int = 1
    """Of every second broker; the others have one."""
    segment_bytes: int = 1 << 20
    retention_bytes: int = UNLIMITED
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    retention_ms: int = UNLIMITED
    roll_ms: int = NEVER


COMPACTED: Final = (("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.05"))
"""Settings of a topic that is compacted as soon as there is something to compact."""

OFFSETS_MIN_INSYNC: Final = 2
"""min.insync.replicas of the topic that groups are kept in."""


class GroupMembers(NamedTuple):
    """A consumer group: how many members it has of either kind (KIP-345)."""

    dynamic: int
    static: int


class GroupShape(NamedTuple):
    """The consumer groups of a run, and the topic they are kept in."""

    partitions: int
    segment_bytes: int
    groups: tuple[GroupMembers, ...]
    faults: int
    """What befalls coordinators, beside all that befalls brokers."""
    is_compacted: bool
    """Whether that topic is."""


class Shape(NamedTuple):
    """A run. Times in virtual seconds."""

    profile: str
    brokers: int
    topics: tuple[TopicShape, ...]
    faults: int
    first_fault_s: float
    heal_s: float
    """When the last fault has healed."""
    patience_s: float
    """How long after that the cluster may take to converge."""
    least_s: float
    """How long it lasts at least."""
    lossy: int
    """Crashes that lose what was not synced; with more than min.insync.replicas - 1 of them records may be lost."""
    producers: tuple[str, ...]
    """Their modes."""
    load: float
    """How often producers send, as a multiple of their usual."""
    consumers: int
    storage: Storage
    balance_s: int = 0
    """How often controllers look whether leaders are where they are preferred; 0 for never."""
    wrong_clocks_ms: tuple[int, ...] = ()
    """By how much the producers' wall clocks are wrong, in the order of `producers`; where it is empty, by nothing."""
    clocks_heal: bool = True
    """Whether brokers' wall clocks are set right in the end, or all must be well although they are wrong."""
    reconcile_ms: int = RECONCILE_MS
    """How often controllers compare what agents host with what they shall; `NEVER` for never."""
    possible_groups: GroupShape | None = None
    """The groups that there are if there are any: drawn by themselves, so that they change no run without."""
    grouped: bool = False
    possible_keys: TopicShape | None = None
    """The compacted topic that there may be: drawn by itself, too."""

    @property
    def reconciles(self) -> bool:
        """Whether what an agent has forgotten by itself is put right."""
        return self.reconcile_ms != NEVER

    def reconciled(self) -> Shape:
        """The same run, in which that is done."""
        return self if self.reconciles else self._replace(reconcile_ms=RECONCILE_MS)

    @property
    def groups(self) -> GroupShape | None:
        """The consumer groups of the run."""
        return self.possible_groups if self.grouped else None

    @property
    def is_compacted(self) -> bool:
        """Whether brokers compact anything."""
        return any(topic.is_keyed for topic in self.topics) or (self.groups is not None and self.groups.is_compacted)

    def with_keys(self) -> Shape:
        """The same run with a topic of keyed records, if it may have one."""
        if self.possible_keys is None or self.possible_keys in self.topics:
            return self
        return self._replace(topics=(*self.topics, self.possible_keys))

    def without_keys(self) -> Shape:
        """The same run without such a topic."""
        return self._replace(topics=tuple(topic for topic in self.topics if not topic.is_keyed))

    def unreconciled(self) -> Shape:
        """The same run, in which nothing mends in passing what was sent wrongly, or not at all."""
        return self._replace(reconcile_ms=NEVER)


TOPICS: Final = (TopicShape("blue", 2, 3, 2), TopicShape("red", 1, 3, 2))
PROFILES: Final = ("quick", "deep")

_PRODUCERS: Final = (
    ("idempotent",),
    ("hasty",),
    ("idempotent", "hasty"),
    ("idempotent", "plain"),
    ("hasty", "leader"),
    ("idempotent", "hasty", "plain"),
)


def shape_of(profile: str, seed: int) -> Shape:
    """The run of a seed under a profile. `quick` is always of one shape; `deep` varies everything by the seed."""
    if profile == "quick":
        return Shape(profile, 3, TOPICS, 10, 5.0, 50.0, 30.0, 60.0, 0, ("idempotent",), 1.0, 1, Storage())
    chance = random.Random(f"shape {seed}")  # a string seeds by its bytes, whatever PYTHONHASHSEED is
    brokers = chance.choice((3, 3, 3, 4))
    unclean = chance.random() < 0.15
    topics = (
        TopicShape("blue", chance.choice((1, 2, 3)), 3, 1 if unclean else chance.choice((2, 2, 2, 1)), unclean),
        TopicShape("red", chance.choice((1, 2)), chance.choice((2, 3)), chance.choice((1, 2))),
    )
    shape = Shape(
        profile,
        brokers,
        topics,
        chance.randint(8, 26),
        5.0,
        chance.choice((38.0, 45.0, 55.0)),
        30.0,
        0.0,
        chance.choice((0, 0, 1, 2)),
        chance.choice(_PRODUCERS),
        chance.choice((1.0, 1.0, 2.0)),
        chance.choice((1, 2)),
        _storage(chance, retained=chance.random() < (0.8 if unclean else 0.35)),
        random.Random(f"balance {seed}").choice((0, 0, 1, 3)),
        reconcile_ms=NEVER if seed % DRILL_EVERY == _UNRECONCILED else RECONCILE_MS,
    )
    if seed % DRILL_EVERY == 0:
        return shape
    shape = _with_time(shape, chance)
    shape = shape._replace(possible_keys=_keys(seed))
    if random.Random(f"keyed {seed}").random() < KEYED:
        shape = shape.with_keys()
    return shape._replace(possible_groups=_groups(seed), grouped=random.Random(f"groups {seed}").random() < GROUPED)


def _groups(seed: int) -> GroupShape:
    chance = random.Random(f"shape of groups {seed}")
    number = chance.choice((1, 1, 2))
    groups = [GroupMembers(chance.choice((1, 2, 2, 3)), chance.choice((0, 0, 1, 2))) for _ in range(number)]
    segment_bytes = chance.choice((1 << 20, 4_000, 1_500))
    is_compacted = random.Random(f"compaction of groups {seed}").random() < 0.8
    return GroupShape(chance.choice((1, 2)), segment_bytes, tuple(groups), chance.randint(2, 7), is_compacted)


def _keys(seed: int) -> TopicShape:
    chance = random.Random(f"shape of keys {seed}")
    configs = (*COMPACTED, ("segment.bytes", str(chance.choice((300, 600, 1_500)))))
    unclean = chance.random() < 0.3
    return TopicShape("green", 1, 3, 1 if unclean else 2, unclean, configs, is_keyed=True)


def _with_time(shape: Shape, chance: random.Random) -> Shape:
    """In every third shape records expire by time, if only somebody sets a clock: a run lasts a minute or two."""
    if chance.random() >= 0.35:
        return shape
    storage = shape.storage._replace(
        retention_ms=chance.choice((5, 10, 15)) * MINUTE_MS, roll_ms=chance.choice((NEVER, 3 * MINUTE_MS))
    )
    first = chance.choice((0, 0, -4, 4, 12)) * MINUTE_MS
    others = (chance.choice((0, -4, 4, 12, -30)) * MINUTE_MS for _ in shape.producers[1:])  # -30: expired when it comes
    return shape._replace(storage=storage, wrong_clocks_ms=(first, *others), clocks_heal=chance.random() < 0.6)


def _storage(chance: random.Random, *, retained: bool) -> Storage:
    segment_bytes = chance.choice((1 << 20, 2_000, 600))
    return Storage(
        chance.choice((1, 2)),
        300 if retained else segment_bytes,
        chance.choice((600, 1_500)) if retained else UNLIMITED,
        chance.choice((NEVER, NEVER, 1, 10)),
        chance.choice((NEVER, NEVER, 1_000)),
    )


def directories_of(shape: Shape, broker: BrokerId) -> tuple[str, ...]:
    first = f"/logs-{broker}"
    return (first, f"/more-{broker}") if shape.storage.directories > 1 and broker % 2 else (first,)


MARKS_MS = 2_000
"""How often a broker writes its high watermarks down."""


@cache
def settings_of(shape: Shape, broker: BrokerId) -> BrokerSettings:
    """Settings of a broker: Kafka's, with times that fit into a minute."""
    storage = shape.storage
    return BrokerSettings(
        broker_id=broker,
        log_dirs=directories_of(shape, broker),
        zookeeper_connect="zookeeper",
        zookeeper_session_timeout_ms=3_000,
        replica_lag_time_max_ms=4_000,
        replica_fetch_wait_max_ms=1_000,
        replica_fetch_backoff_ms=300,
        replica_socket_timeout_ms=4_000,
        replica_high_watermark_checkpoint_interval_ms=MARKS_MS,
        controller_socket_timeout_ms=4_000,
        controlled_shutdown_retry_backoff_ms=500,
        log_segment_bytes=storage.segment_bytes,
        log_segment_delete_delay_ms=4_000,
        log_retention_bytes=storage.retention_bytes,
        log_retention_ms=storage.retention_ms,
        log_roll_ms=storage.roll_ms,
        log_retention_check_interval_ms=2_000,
        producer_id_expiration_check_interval_ms=2_000,
        log_flush_interval_messages=storage.flush_messages,
        log_flush_interval_ms=storage.flush_ms,
        log_flush_scheduler_interval_ms=500 if storage.flush_ms != NEVER else NEVER - 1,
        log_flush_offset_checkpoint_interval_ms=5_000,
        log_flush_start_offset_checkpoint_interval_ms=5_000,
        log_cleaner_backoff_ms=1_000 if shape.is_compacted else 15_000,
        auto_create_topics_enable=False,
        auto_leader_rebalance_enable=shape.balance_s > 0,
        leader_imbalance_check_interval_seconds=max(shape.balance_s, 1),
        default_replication_factor=3,
        regency_loop_watchdog_ms=5_000,
        regency_reconcile_interval_ms=shape.reconcile_ms,
        group_min_session_timeout_ms=1_000,
        group_initial_rebalance_delay_ms=500,
        offsets_commit_timeout_ms=2_000,
        offsets_retention_check_interval_ms=5_000,
    )
