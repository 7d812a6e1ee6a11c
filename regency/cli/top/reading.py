"""What `regency top` shows at one moment, read from a controller's answers. No I/O; remembers what rates need."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence

import msgspec

from regency.history.events import events_of
from regency.history.records import Decision, decode_decision
from regency.protos import controller_pb2
from regency.protos import inspection_pb2 as pb

SILENT_MS = 25_000
"""An agent whose last report is older is silent: one gives a sign of life every 10 s."""
DECISIONS_KEPT = 100
OLD_CONTROLLER = (
    "The ruling controller runs an older version, which tells no more than this: "
    "brokers and what is not well are missing here."
)


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


class EventLine(msgspec.Struct, frozen=True):
    """What was decided because of one cause, in a sentence; `time_ms` since 1970."""

    time_ms: int
    controller_epoch: int
    number: int
    told: str


class Snapshot(msgspec.Struct, frozen=True):
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
    worst: list[TroubleLine] = []
    decisions: list[DecisionLine] = []
    """Oldest first."""
    events: list[EventLine] = []
    """The same by event, oldest first; many more decisions may stand behind them."""
    focus: str = ""
    """The topic whose partitions are in `focused`, all of them; empty: none was asked for."""
    focused: list[TroubleLine] = []


class Reader:
    """Reads one cluster's answers, in the order they came in."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._rates = Rates()
        self._decisions: dict[tuple[int, int], DecisionLine] = {}
        self._events: dict[tuple[int, int], EventLine] = {}

    def read(self, answer: pb.SummariseResponse, disks: dict[int, float], *, now_s: float, time_ms: int) -> Snapshot:
        """What a ruling controller has told, and how full volumes are, by broker; `now_s` is monotonic."""
        brokers = [self._broker(answer, each, disks, now_s) for each in answer.brokers]
        self._rates.forget_all_but({(answer.controller_epoch, e.broker_id, e.broker_epoch) for e in answer.brokers})
        decoded = [each for each in map(decode_decision, answer.decisions) if each is not None]
        for decision in decoded:
            self._decisions[decision.controller_epoch, decision.number] = _decided(decision)
        self._see_events(answer, decoded)
        kept = sorted(self._decisions)[-DECISIONS_KEPT:]
        self._decisions = {key: self._decisions[key] for key in kept}
        told = [each.records_per_s for each in brokers if each.records_per_s is not None]
        return Snapshot(
            self._servers,
            time_ms,
            notes=_notes(answer),
            age_s=0.0,
            controller=ControllerLine(
                answer.broker_id,
                answer.controller_epoch,
                answer.state,
                answer.queued,
                max(0.0, (time_ms - answer.ruling_since_ms) / 1000) if answer.ruling_since_ms else None,
                answer.failover_ms / 1000,
                answer.in_contact,
            ),
            brokers=brokers,
            partitions=_counts(answer),
            records_per_s=sum(told) if told else None,
            worst=[_trouble(each) for each in answer.worst],
            decisions=list(self._decisions.values()),
            events=list(self._events.values()),
        )

    def _see_events(self, answer: pb.SummariseResponse, decisions: Sequence[Decision]) -> None:
        """Keep the last events. A controller that is too old to tell them tells of decisions: they are put together."""
        epoch = answer.controller_epoch
        told = [EventLine(each.time_ms, epoch, each.number, each.told) for each in answer.events]
        if not told:
            self._events = {key: each for key, each in self._events.items() if key[0] != epoch}
            together = events_of(decisions)
            told = [EventLine(e.time_ms, e.controller_epoch, e.decisions[0].number, e.told) for e in together]
        self._events |= {(each.controller_epoch, each.number): each for each in told}
        self._events = {key: self._events[key] for key in sorted(self._events)[-DECISIONS_KEPT:]}

    def read_described(self, told: controller_pb2.DescribeControllerResponse, *, time_ms: int) -> Snapshot:
        """What a controller of an older version tells."""
        return Snapshot(
            self._servers,
            time_ms,
            notes=[OLD_CONTROLLER],
            age_s=0.0,
            controller=ControllerLine(told.broker_id, told.controller_epoch, told.state),
            partitions=PartitionCounts(told.topics, told.partitions, told.offline_partitions),
        )

    def _broker(
        self, answer: pb.SummariseResponse, each: pb.SummarisedBroker, disks: dict[int, float], now_s: float
    ) -> BrokerLine:
        if each.broker_epoch < 0:
            return BrokerLine(each.broker_id, "dead")
        reported = each.report_age_ms >= 0
        rate = None
        if reported:
            name = (answer.controller_epoch, each.broker_id, each.broker_epoch)
            rate = self._rates.see(name, each.appended, now_s)
        state = "leaving" if each.shutting_down else "silent" if each.report_age_ms > SILENT_MS else "live"
        return BrokerLine(
            each.broker_id,
            state,
            f"[{each.host}]:{each.port}" if ":" in each.host else f"{each.host}:{each.port}",
            each.broker_id == answer.broker_id,
            each.leads if reported else None,
            each.follows if reported else None,
            each.offline_replicas if reported else None,
            rate,
            disks.get(each.broker_id),
            each.unacknowledged,
            each.oldest_attempt_ms / 1000,
            each.last_failure or None,
        )


def _notes(answer: pb.SummariseResponse) -> list[str]:
    if answer.in_contact:
        return []
    return [f"ZooKeeper is away: controller {answer.broker_id} has no contact with it, and decides nothing meanwhile."]


def _counts(answer: pb.SummariseResponse) -> PartitionCounts:
    return PartitionCounts(
        answer.topics,
        answer.partitions,
        answer.offline,
        None if answer.uncounted_topics else answer.partitions - answer.under_replicated,
        answer.under_replicated,
        answer.under_min_isr,
        answer.reassigning,
        answer.deleting,
        answer.uncounted_topics,
    )


def _trouble(each: pb.PartitionTrouble) -> TroubleLine:
    return TroubleLine(
        each.topic,
        each.partition,
        each.kind,
        None if each.leader < 0 else each.leader,
        list(each.replicas),
        list(each.isr),
        each.reassigning,
    )


def _decided(decision: Decision) -> DecisionLine:
    return DecisionLine(
        decision.time_ms,
        decision.controller_epoch,
        decision.number,
        decision.subject,
        decision.from_,
        decision.to,
        decision.why,
    )


WINDOW_S = 10.0
"""Agents report once a second: over much less than this, reports that come early and late would show as swings."""


class Rates:
    """Growth per second of counters by name, over the last `WINDOW_S` seconds of what was seen."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, deque[tuple[float, int]]] = {}

    def see(self, name: Hashable, count: int, now_s: float) -> float | None:
        """Note a count, and give its rate; None after the first, and after one that is smaller than the one before."""
        seen = self._seen.setdefault(name, deque())
        if seen and count < seen[-1][1]:
            seen.clear()
        seen.append((now_s, count))
        while len(seen) > 2 and now_s - seen[1][0] >= WINDOW_S:
            seen.popleft()
        first_s, first = seen[0]
        return (count - first) / (now_s - first_s) if now_s > first_s else None

    def forget_all_but(self, names: set[Hashable]) -> None:
        """Forget counters that are no more."""
        for name in [each for each in self._seen if each not in names]:
            del self._seen[name]
