"""What `regency top` shows at one moment, read from a controller's answers. No I/O; remembers what rates need."""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from regency.cli.asking.rates import CatchUp, Rates, catch_up
from regency.cli.top.figures import BrokerFigures, GroupFigures
from regency.cli.top.snapshot import (
    BrokerLine,
    ControllerLine,
    DecisionLine,
    EventLine,
    GroupLine,
    PartitionCounts,
    Snapshot,
    TroubleLine,
)
from regency.history.events import events_of, step_of
from regency.history.records import Decision, decode_decision
from regency.model.ids import BrokerId, TopicPartition
from regency.protos import controller_pb2
from regency.protos import inspection_pb2 as pb

N = TypeVar("N", int, float)

SILENT_MS = 25_000
"""An agent whose last report is older is silent: one gives a sign of life every 10 s."""
DECISIONS_KEPT = 100
OLD_CONTROLLER = (
    "The ruling controller runs an older version, which tells no more than this: "
    "brokers and what is not well are missing here."
)


class Reader:
    """Reads one cluster's answers, in the order they came in."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._rates = Rates()
        self._named: set[Hashable] = set()
        self._placed: set[Hashable] = set()
        self._decisions: dict[tuple[int, int], DecisionLine] = {}
        self._events: dict[tuple[int, int], EventLine] = {}

    def read(
        self, answer: pb.SummariseResponse, figures: Mapping[int, BrokerFigures], *, now_s: float, time_ms: int
    ) -> Snapshot:
        """What a ruling controller has told, and brokers about themselves; `now_s` is monotonic."""
        self._rates.forget_all_but(self._named | self._placed)  # those of the look before
        self._named = set()
        outside = {broker for each in answer.worst for broker in each.replicas if broker not in each.isr}
        brokers = [self._broker(answer, each, figures, now_s, each.broker_id in outside) for each in answer.brokers]
        decoded = [each for each in map(decode_decision, answer.decisions) if each is not None]
        for decision in decoded:
            self._decisions[decision.controller_epoch, decision.number] = _decided(decision)
        self._see_events(answer, decoded)
        kept = sorted(self._decisions)[-DECISIONS_KEPT:]
        self._decisions = {key: self._decisions[key] for key in kept}
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
            records_per_s=_sum(each.records_per_s for each in brokers),
            bytes_in_per_s=_sum(each.bytes_in_per_s for each in brokers),
            bytes_out_per_s=_sum(each.bytes_out_per_s for each in brokers),
            lag=_sum(each.lag for each in brokers),
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

    def focus(self, snapshot: Snapshot, figures: Mapping[int, BrokerFigures], *, now_s: float) -> Snapshot:
        """With bytes of the topic that is shown."""
        counted = [
            (
                self._count(("in", snapshot.focus, broker), told.topic_in, now_s),
                self._count(("out", snapshot.focus, broker), told.topic_out, now_s),
            )
            for broker, told in figures.items()
        ]
        return msgspec.structs.replace(
            snapshot,
            focus_in_per_s=_sum(each for each, _ in counted),
            focus_out_per_s=_sum(each for _, each in counted),
        )

    def groups(self, told: Mapping[str, GroupFigures]) -> list[GroupLine]:
        """Groups, the one that is most behind first, and how that goes on."""
        lines = []
        for group, each in told.items():
            change = None
            if each.lag is not None:
                name = ("lag of group", group, each.coordinator, each.partial)
                self._named.add(name)
                change = self._rates.follow(name, each.lag, each.at_s)
            going = catch_up(each.lag, change)
            lines.append(GroupLine(group, each.coordinator, each.members, each.lag, each.partial, going))
        return sorted(lines, key=lambda line: (-(line.lag or 0), line.group))

    def place(
        self, lines: Sequence[TroubleLine], ends: Mapping[tuple[BrokerId, TopicPartition], int], *, now_s: float
    ) -> list[TroubleLine]:
        """The lines with lags, from where logs end."""
        self._placed = set()
        return [self._place(each, ends, now_s) for each in lines]

    def _place(
        self, line: TroubleLine, ends: Mapping[tuple[BrokerId, TopicPartition], int], now_s: float
    ) -> TroubleLine:
        name = TopicPartition(line.topic, line.partition)
        led = None if line.leader is None else ends.get((BrokerId(line.leader), name))
        if line.leader is None:
            return line
        lags: list[int | None] = []
        slowest: CatchUp | None = None
        for broker in line.replicas:
            end = ends.get((BrokerId(broker), name))
            lag = None if led is None or end is None else max(0, led - end)
            lags.append(lag)
            if broker in line.isr:
                continue
            key = ("lag", name, broker, line.leader)
            self._placed.add(key)
            found = catch_up(lag, None if lag is None else self._rates.follow(key, lag, now_s))
            if slowest is None or _slowness(found) > _slowness(slowest):
                slowest = found
        return msgspec.structs.replace(line, lags=lags, catch_up=slowest)

    def _count(self, name: Hashable, count: float | None, now_s: float) -> float | None:
        if count is None:
            return None
        self._named.add(name)
        return self._rates.see(name, count, now_s)

    def _lag(
        self, broker: int, answer: pb.SummariseResponse, figures: Mapping[int, BrokerFigures], outside: bool
    ) -> tuple[int | None, bool, CatchUp | None]:
        """Records that a broker is behind, whether it may be more, and how that goes on."""
        leaders = [figures.get(each.broker_id) for each in answer.brokers if each.leads and each.broker_id != broker]
        told = [each for each in leaders if each is not None and each.lags is not None]
        if not told:
            return (None if leaders else 0), bool(leaders), CatchUp() if outside else None
        lag = sum((each.lags or {}).get(broker, 0) for each in told)
        partial = len(told) < len(leaders) or any(each.unknown.get(broker) for each in told)
        if partial and not lag:
            return None, True, CatchUp() if outside else None
        name = ("lag of broker", broker, len(told))
        self._named.add(name)
        change = self._rates.follow(name, lag, max(each.lags_s for each in told))
        return lag, partial, catch_up(lag, change) if outside else None

    def _broker(
        self,
        answer: pb.SummariseResponse,
        each: pb.SummarisedBroker,
        figures: Mapping[int, BrokerFigures],
        now_s: float,
        outside: bool,
    ) -> BrokerLine:
        lag, partial, catching_up = self._lag(each.broker_id, answer, figures, outside)
        if each.broker_epoch < 0:
            return BrokerLine(each.broker_id, "dead", lag=lag, lag_partial=partial, catch_up=catching_up)
        reported = each.report_age_ms >= 0
        told = figures.get(each.broker_id, BrokerFigures())
        incarnation = (each.broker_id, each.broker_epoch)
        rate = None
        if reported:
            rate = self._count((answer.controller_epoch, *incarnation), each.appended, now_s)
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
            told.disk_used,
            each.unacknowledged,
            each.oldest_attempt_ms / 1000,
            each.last_failure or None,
            self._count(("in", *incarnation), told.bytes_in, now_s),
            self._count(("out", *incarnation), told.bytes_out, now_s),
            lag,
            partial,
            catching_up,
            told.connections,
            self._refused(incarnation, told, now_s),
        )

    def _refused(self, incarnation: tuple[int, int], told: BrokerFigures, now_s: float) -> dict[str, float] | None:
        """Errors that produces are answered now."""
        if told.failed_produces is None:
            return None
        rates = {
            error: self._count((error, *incarnation), count, now_s) for error, count in told.failed_produces.items()
        }
        return {error: rate for error, rate in rates.items() if rate}


def _slowness(found: CatchUp) -> float:
    """What gets worse is the slowest, then what is not known."""
    if found.in_s is not None:
        return found.in_s
    return float("1e300") if found.per_s is None else float("inf")


def _sum(figures: Iterable[N | None]) -> N | None:
    """None where none is known."""
    told = [each for each in figures if each is not None]
    return functools.reduce(operator.add, told) if told else None


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
        f"{decision.subject}: {step_of(decision)} ({decision.why})",
    )
