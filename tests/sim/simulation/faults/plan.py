"""The faults of a run: drawn from its seed before it begins, so that what the cluster does cannot change them."""

from __future__ import annotations

import random
from enum import Enum
from typing import NamedTuple

from regency.model.settings.log_config import NEVER, UNLIMITED
from simulation.shape import DRILL_EVERY, Shape

SECOND_US = 1_000_000


class Kind(Enum):
    """A kind of fault; the value is what reports call it."""

    KILL_AGENT = "kill agent"
    KILL_CONTROLLER = "kill controller"
    BOUNCE = "crash and restart at once"
    STOP_AGENT = "stop agent"
    RESTART_ALL = "all agents die"
    ROLLING_RESTART = "rolling restart"
    FAILOVERS = "leaders end one after another"
    STOP_AND_CUT = "restarted in order, then the power is cut"
    PAUSE_AGENT = "pause agent"
    PAUSE_CONTROLLER = "pause controller"
    PAUSE_HOST = "pause host"
    PAUSE_RULER = "pause who rules"
    PAUSE_LEADER = "pause who leads"
    LOOP_STANDS = "data loop stands still"
    SLOW_STEPS = "every step takes long"
    CRASH_AT_POINT = "crash at point"
    PAUSE_AT_POINT = "pause at point"
    CUT_AT_POINT = "cut from zookeeper at point"
    STALL_AT_POINT = "thread stands still at point"
    CRASH_AT_DISK = "crash at disk operation"
    LAST_IN_SYNC = "last in sync dies"
    ISOLATE = "isolate host"
    ONE_WAY = "one-way partition"
    HALF_OPEN = "half-open connections"
    SPLIT = "cut a pair"
    SWIZZLE = "swizzle"
    LOSS = "lossy link"
    DELAY = "slow link"
    LATE = "late requests"
    LOSE_ANSWERS = "answers lost"
    RESET = "reset connections"
    FORGET = "the network forgets connections"
    STRANGER = "a stranger speaks in another's name"
    ZK_CUT = "cut from zookeeper"
    ZK_BLINK = "controllers lose contact with zookeeper"
    ZK_BLINK_AGENTS = "agents lose contact with zookeeper"
    ZK_HALF_OPEN = "one way cut from zookeeper"
    ZK_RESET = "zookeeper connections reset"
    ZK_LOST_REPLY = "zookeeper reply lost"
    ZK_EXPIRE = "session expired"
    ZK_SLOW = "slow zookeeper"
    ZK_OUTAGE = "zookeeper outage"
    ZK_SERVER = "zookeeper server dies"
    ZK_LAG = "lagging zookeeper server"
    DISK_FULL = "disk full"
    DISK_FAILS = "disk fails"
    DIRECTORY_FAILS = "log directory fails"
    DISK_SHORT = "short writes"
    DISK_SLOW = "slow disk"
    NO_DESCRIPTORS = "no descriptors"
    CLOCK_DRIFT = "clock drifts"
    CLOCK_STEP = "clock steps"
    DELETE_CONTROLLER = "delete /controller"
    RESIGNATIONS = "delete /controller again and again"
    RECREATE_TOPIC = "topic deleted and made anew in zookeeper"
    DELETE_TOPIC = "topic deleted and made anew by request"
    DELETE_NEW_TOPIC = "topic created and deleted"
    ADD_PARTITION = "partition added in zookeeper"
    CREATE_TOPIC = "topic created"
    REASSIGN = "partitions reassigned"
    REASSIGN_AGAIN = "partitions reassigned, and otherwise before that is done"
    CHANGE_CONFIG = "settings changed"
    GROW_TOPIC = "partitions added by request"
    ALTER_CONFIG = "settings changed by request"
    RESIGN = "controller asked to resign"
    SHUT_DOWN = "broker told to leave by request"
    ELECT_PREFERRED = "preferred leaders asked for"
    ELECT_BY_ZNODE = "preferred leaders asked for in zookeeper"
    ELECT_UNCLEAN = "leaders asked for at any price"
    LEAVE_AND_STAY = "a broker asks to leave and stays"
    LOG_DIR_EVENT = "a log directory is said to have failed"
    LOSE_REPLICA = "a replica, its role or its fetcher is lost from memory"
    DELETE_RECORDS = "records deleted by request"
    HOLES = "holes come to be in a leader's log"
    KILL_CLIENT = "kill client"
    DRILL_ISR_WRITES = "drill: a member restarts while the ISR is written"
    DRILL_LEAVING = "drill: who is about to join stops"
    DRILL_TRUNCATIONS = "drill: a follower differs by two epochs"
    DRILL_COPIES = "drill: control requests arrive again"
    DRILL_LATE_LEAVE = "drill: a request to leave arrives in the next life"
    DRILL_LEAVER = "drill: a leader dies while another leaves"
    DRILL_LOST_WRITES = "drill: what is written is not heard of"
    DRILL_REASSIGNMENTS = "drill: a partition moves while who has to do with it is dead"
    DRILL_DISKS = "drill: a broker cannot do at once what its logs need"
    DRILL_UNHEARD = "drill: somebody acts while another does not hear it"

    DRILL_LOST_TAILS = "drill: the tail of a deposed leader is lost"
    DRILL_FORGETTING = "drill: replicas are lost from memory, and who rules ends"
    DRILL_DELETIONS = "drill: a topic is deleted while who has to do with it is dead"
    COORDINATOR = "something befalls the coordinator of a group"
    CLEANING = "crash where a log is compacted"


class Fault(NamedTuple):
    """One fault: what happens to whom, when, and for how long."""

    at_us: int
    kind: Kind
    broker: int
    other: int
    """A second broker, never the same."""
    for_us: int
    detail: float
    """Uniform in [0, 1): whatever else the kind has to choose."""
    lossy: bool

    def __str__(self) -> str:
        lossy = ", losing what was not synced" if self.lossy else ""
        lasting = f"for {self.for_us / SECOND_US:.3f} s"
        return f"{self.kind.value}: broker {self.broker}, other {self.other}, {lasting}{lossy}"

    def chance(self) -> random.Random:
        """More of the fault's own chance, where one number is not enough; the same with every call."""
        return random.Random(f"{self.at_us} {self.detail!r}")


AT_POINTS = (
    Kind.CRASH_AT_POINT,
    Kind.CRASH_AT_POINT,
    Kind.PAUSE_AT_POINT,
    Kind.CUT_AT_POINT,
    Kind.STALL_AT_POINT,
    Kind.STALL_AT_POINT,
)
CRASHES = (
    Kind.KILL_AGENT,
    Kind.BOUNCE,
    Kind.LAST_IN_SYNC,
    Kind.FAILOVERS,
    Kind.STOP_AND_CUT,
    Kind.CRASH_AT_POINT,
    Kind.CRASH_AT_DISK,
)
LONG = (
    Kind.PAUSE_AGENT,
    Kind.PAUSE_CONTROLLER,
    Kind.PAUSE_HOST,
    Kind.PAUSE_RULER,
    Kind.PAUSE_LEADER,
    Kind.ISOLATE,
    Kind.ZK_CUT,
    Kind.ZK_OUTAGE,
    Kind.RESTART_ALL,
)
LATEST_US = {
    Kind.RECREATE_TOPIC: 12 * SECOND_US,
    Kind.DELETE_TOPIC: 12 * SECOND_US,
    Kind.DELETE_NEW_TOPIC: 4 * SECOND_US,
    Kind.ROLLING_RESTART: 8 * SECOND_US,
    Kind.LAST_IN_SYNC: 19 * SECOND_US,
    Kind.FAILOVERS: 10 * SECOND_US,
    Kind.STOP_AND_CUT: 8 * SECOND_US,
    Kind.CREATE_TOPIC: 0,
    Kind.ELECT_UNCLEAN: 9 * SECOND_US,
    Kind.REASSIGN: 1 * SECOND_US,
    Kind.REASSIGN_AGAIN: 6 * SECOND_US,
}
"""Kinds that begin no later than so long before everything heals; others 2 s."""


OF_MEMORY: tuple[Kind, ...] = (Kind.LOSE_REPLICA, Kind.DRILL_FORGETTING)
"""What nothing but a reconcile can mend: left out where there is none."""

_IN_TURN: tuple[tuple[Kind, ...], ...] = (
    (Kind.DRILL_ISR_WRITES,),
    (Kind.DRILL_LEAVING,),
    (Kind.DRILL_COPIES,),
    (Kind.DRILL_UNHEARD,),
    (Kind.DRILL_LATE_LEAVE,),
    (Kind.DRILL_LEAVER,),
    (Kind.DRILL_LOST_WRITES,),
    (Kind.DRILL_DISKS,),
    (Kind.DRILL_TRUNCATIONS,),
    (Kind.DRILL_REASSIGNMENTS,),
    (Kind.DRILL_LOST_TAILS,),
    (Kind.DRILL_FORGETTING, Kind.DRILL_DELETIONS),
)
"""Which drill comes when: after the last the first again. Of those that share a place, one this time, one the next."""

DRILLS: tuple[Kind, ...] = tuple(kind for place in _IN_TURN for kind in place)
"""Chains of events that a known hole needs and chance alone seldom arranges. Each is a kind of fault of its own."""

DRILL_US = 8 * SECOND_US
"""How long a drill may take, all its consequences included."""

SHORTER_US = {
    Kind.DRILL_ISR_WRITES: 5 * SECOND_US,
    Kind.DRILL_UNHEARD: 5 * SECOND_US,
    Kind.DRILL_DELETIONS: 7 * SECOND_US,
}
"""Drills that take less, so that all of their variants fit into a run, or each of them often."""


LED_BY_TURNS = (Kind.DRILL_TRUNCATIONS, Kind.DRILL_LOST_TAILS, Kind.DRILL_DELETIONS, Kind.DRILL_DISKS)
"""Drills that have one after the other lead: nobody gives leadership back to who is preferred meanwhile."""


BESIDE: tuple[tuple[Kind, float, int], ...] = (
    (Kind.FORGET, 0.5, 4),
    (Kind.LOOP_STANDS, 0.4, 3),
    (Kind.SLOW_STEPS, 0.5, 4),
    (Kind.DELETE_RECORDS, 0.6, 5),
    (Kind.HOLES, 0.4, 4),
)
"""Kinds that come beside those of a schedule: in which share of the deep ones that are no drill, and at most how often.

Drawn by themselves, so that they change no other fault of any seed."""


def drill_of(shape: Shape, seed: int) -> Kind | None:
    """The drill that a seed goes through; None where it is another kind of run."""
    if shape.profile != "deep" or seed % DRILL_EVERY:
        return None
    round_, place = divmod(seed // DRILL_EVERY, len(_IN_TURN))
    kinds = [kind for kind in _IN_TURN[place] if shape.reconciles or kind not in OF_MEMORY]
    return kinds[round_ % len(kinds)]


def fitted(shape: Shape, seed: int) -> Shape:
    """A shape with what the seed's drill needs."""
    drill, storage = drill_of(shape, seed), shape.storage
    if drill in LED_BY_TURNS:
        shape = shape._replace(balance_s=0)
    if drill in (Kind.DRILL_UNHEARD, Kind.DRILL_LOST_TAILS):
        # What one replica loses at a power cut must not be lost; and there has to be something to lose.
        topics = tuple(topic._replace(min_insync=2, unclean=False) for topic in shape.topics)
        storage = storage._replace(flush_messages=NEVER, flush_ms=NEVER)
        shape = shape._replace(topics=topics, storage=storage)
    if drill is Kind.DRILL_LOST_TAILS:
        # Tails of some segments within seconds, which are synced by rolling and stopping only.
        storage = storage._replace(segment_bytes=120, retention_bytes=UNLIMITED)
        # In one topic records expire, in another nothing does; both have followers enough.
        topics = tuple(topic._replace(replication_factor=3) for topic in shape.topics)
        shape = shape._replace(topics=topics, storage=storage, load=4.0, producers=("idempotent", "plain"))
    if drill is Kind.DRILL_LOST_WRITES:
        shape = shape._replace(heal_s=55.0)  # there is time for all of it
    if drill is Kind.DRILL_LATE_LEAVE:
        # At a power cut everything is on the disk, but for what is written when a segment that was synced is full.
        storage = storage._replace(segment_bytes=400, flush_messages=1)
        shape = shape._replace(storage=storage)
    if drill is Kind.DRILL_TRUNCATIONS:
        # Whoever leads is written to at once, also while others wait for what the one before has not answered.
        shape = shape._replace(producers=("idempotent", "hasty", "plain"), load=max(shape.load, 2.0))
    if drill is Kind.DRILL_DELETIONS:
        # A log that is made anew takes what is sent again from those only who do not number it, and keeps it.
        storage = storage._replace(retention_bytes=UNLIMITED)
        shape = shape._replace(producers=("idempotent", "plain"), load=max(shape.load, 2.0), storage=storage)
    if drill is Kind.DRILL_DISKS:
        # Nothing but the background knows where logs were cut off; and there is time for all of it.
        storage = storage._replace(directories=2, segment_bytes=1 << 20, flush_messages=NEVER, flush_ms=NEVER)
        shape = shape._replace(storage=storage._replace(retention_bytes=UNLIMITED), heal_s=45.0)
    return shape


def plan(shape: Shape, seed: int) -> list[Fault]:
    """The faults of a seed, by time. All are over at `shape.heal_s`."""
    kind = drill_of(shape, seed)
    faults = _by_chance(shape, seed) + _beside(shape, seed) if kind is None else _drill(shape, seed, kind)
    faults += _of_groups(shape, seed) + _of_compaction(shape, seed)
    faults.sort(key=lambda fault: fault.at_us)
    return faults if shape.reconciles else [fault for fault in faults if fault.kind not in OF_MEMORY]


def _by_chance(shape: Shape, seed: int) -> list[Fault]:
    chance = random.Random(f"faults {seed}")
    kinds = _swarm(shape, chance)
    first, last = int(shape.first_fault_s * SECOND_US), int(shape.heal_s * SECOND_US)
    times = sorted(chance.randrange(first, last - 2 * SECOND_US) for _ in range(shape.faults))
    lossy_left = shape.lossy
    faults: list[Fault] = []
    for at_us in times:
        kind = chance.choice(kinds)
        broker = chance.randint(1, shape.brokers)
        other = chance.choice([each for each in range(1, shape.brokers + 1) if each != broker])
        duration = int(chance.choice((0.3, 1.0, 2.0, 4.0, 8.0)) * (0.5 + chance.random()) * SECOND_US)
        lossy = kind in CRASHES and lossy_left > 0 and chance.random() < (0.9 if kind is Kind.CRASH_AT_POINT else 0.5)
        lossy_left -= lossy
        at_us = min(at_us, last - LATEST_US.get(kind, 0))
        faults.append(Fault(at_us, kind, broker, other, min(duration, last - at_us), chance.random(), lossy))
    return sorted(faults, key=lambda fault: fault.at_us)


def _beside(shape: Shape, seed: int) -> list[Fault]:
    """Faults that come into some deep schedules beside the others, whichever these are; into every eighth never."""
    if shape.profile != "deep" or seed % 8 == 2:
        return []
    chance = random.Random(f"beside {seed}")
    first, last = int(shape.first_fault_s * SECOND_US), int(shape.heal_s * SECOND_US)
    faults: list[Fault] = []
    for kind, share, most in BESIDE:
        if chance.random() >= share:
            continue
        for _ in range(chance.randint(1, most)):
            broker, other = chance.sample(range(1, shape.brokers + 1), 2)
            at_us = chance.randrange(first, last - 2 * SECOND_US)
            for_us = min(int(chance.choice((0.5, 2.0, 8.0)) * (0.5 + chance.random()) * SECOND_US), last - at_us)
            faults.append(Fault(at_us, kind, broker, other, for_us, chance.random(), False))
    return faults


def _of_groups(shape: Shape, seed: int) -> list[Fault]:
    """What befalls coordinators where there are groups."""
    if shape.groups is None:
        return []
    chance = random.Random(f"coordinators {seed}")
    first, last = int(shape.first_fault_s * SECOND_US), int(shape.heal_s * SECOND_US)
    faults: list[Fault] = []
    for _ in range(shape.groups.faults):
        broker, other = chance.sample(range(1, shape.brokers + 1), 2)
        at_us = chance.randrange(first, last - 2 * SECOND_US)
        for_us = min(int(chance.choice((0.5, 2.0, 6.0)) * (0.5 + chance.random()) * SECOND_US), last - at_us)
        faults.append(Fault(at_us, Kind.COORDINATOR, broker, other, for_us, chance.random(), lossy=False))
    return faults


def _of_compaction(shape: Shape, seed: int) -> list[Fault]:
    """Crashes in the middle of compactions, where there are any; of a run's few, one may lose what was not synced."""
    if not shape.is_compacted:
        return []
    chance = random.Random(f"compactions {seed}")
    first, last = int(shape.first_fault_s * SECOND_US), int(shape.heal_s * SECOND_US)
    lossy = chance.randrange(12)
    faults: list[Fault] = []
    for number in range(chance.randint(1, 4)):
        broker, other = chance.sample(range(1, shape.brokers + 1), 2)
        at_us = chance.randrange(first, last - 4 * SECOND_US)
        for_us = int((0.3 + 2 * chance.random()) * SECOND_US)
        faults.append(Fault(at_us, Kind.CLEANING, broker, other, for_us, chance.random(), lossy=number == lossy))
    return faults


def _drill(shape: Shape, seed: int, kind: Kind) -> list[Fault]:
    """One drill as often as there is time for, on brokers by chance."""
    chance = random.Random(f"drill {seed}")
    lasts_us = SHORTER_US.get(kind, DRILL_US)
    last = int(shape.heal_s * SECOND_US) - lasts_us
    faults: list[Fault] = []
    at_us = int(shape.first_fault_s * SECOND_US)
    while at_us <= last:
        broker, other = chance.sample(range(1, shape.brokers + 1), 2)
        faults.append(Fault(at_us, kind, broker, other, lasts_us, chance.random(), False))
        at_us += lasts_us + int(chance.random() * SECOND_US)
    return faults


def _swarm(shape: Shape, chance: random.Random) -> list[Kind]:
    """A few kinds, so that a run goes deep into how they meet; now and then all of them."""
    apart = {Kind.COORDINATOR, Kind.CLEANING, *DRILLS, *(each for each, _, _ in BESIDE)}
    every = [kind for kind in Kind if kind not in apart]
    if shape.profile == "quick":
        every.remove(Kind.CRASH_AT_DISK)
    if chance.random() < 0.2:
        return every
    kinds = chance.sample(every, chance.randint(2, 7))
    if not any(kind in CRASHES or kind in LONG for kind in kinds):
        kinds.append(chance.choice((*CRASHES, *LONG)))
    if chance.random() < 0.3:
        kinds += (Kind.FAILOVERS, Kind.STOP_AND_CUT)
    if chance.random() < 0.3:
        kinds += (Kind.REASSIGN, Kind.REASSIGN_AGAIN)
    if chance.random() < 0.3:
        kinds += (Kind.STRANGER, Kind.STRANGER)
    if chance.random() < 0.9:
        kinds += chance.choices(AT_POINTS, k=chance.randint(1, 3))
    if shape.lossy:
        kinds.append(Kind.CRASH_AT_POINT)
    if any(topic.unclean for topic in shape.topics):
        kinds += (Kind.LAST_IN_SYNC, Kind.LAST_IN_SYNC, Kind.ELECT_UNCLEAN, Kind.CHANGE_CONFIG)
    if shape.storage.directories > 1:
        kinds.append(Kind.NO_DESCRIPTORS)
    if shape.storage.retention_ms != UNLIMITED:
        kinds += (Kind.CLOCK_STEP, Kind.CLOCK_STEP, Kind.CLOCK_STEP)
    return kinds
