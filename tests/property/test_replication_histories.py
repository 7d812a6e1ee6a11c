"""Acknowledged records stay, and an idempotent producer's are there once and in order, whatever happens.

Random histories of produces, retries, fetches, crashes, cuts and elections.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regency.model.ids import NO_LEADER
from regency.model.kafka_errors import ErrorCode


def _load_builders() -> ModuleType:
    path = Path(__file__).parents[1] / "unit" / "replication" / "conftest.py"
    spec = importlib.util.spec_from_file_location("replication_builders", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


builders = _load_builders()
TP = builders.TP

PRODUCER = 9
IN_FLIGHT = 5
"""Unanswered batches of an idempotent producer: as many as a log remembers."""

TRY_AGAIN = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)
"""The last one while an earlier batch is unanswered too: that one may not have arrived."""


class IdempotentProducer:
    """A client with one batch of one record per sequence number, which it sends again until it is acknowledged."""

    def __init__(self, cluster: Any, leader: Callable[[], int | None]) -> None:
        self._cluster = cluster
        self._leader = leader
        self._unanswered: dict[int, list[Any]] = {}
        self._retried_alone: set[int] = set()
        self.sent = 0
        self.acknowledged: dict[int, int] = {}

    def send(self) -> None:
        if self.sent - min(self._unanswered, default=self.sent) < IN_FLIGHT:
            self._send(self.sent)
            self.sent += 1

    def lose_answers(self) -> None:
        self._unanswered = {sequence: [None] for sequence in self._unanswered}

    def take_answers(self) -> None:
        """Note what was acknowledged, and send again, in order, what was refused or lost."""
        for sequence, answers in list(self._unanswered.items()):
            if answers and answers[0] and answers[0].error is ErrorCode.NONE:
                self.acknowledged[sequence] = answers[0].base_offset
                del self._unanswered[sequence]
        for sequence in sorted(self._unanswered):
            answers = self._unanswered[sequence]
            if answers:
                self._check_refusal(sequence, answers[0])
                self._send(sequence)

    @property
    def is_done(self) -> bool:
        return not self._unanswered

    def _check_refusal(self, sequence: int, answer: Any) -> None:
        if answer is not None:
            assert answer.error in TRY_AGAIN, answer
            lost = answer.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and sequence in self._retried_alone
            assert not lost, answer

    def _send(self, sequence: int) -> None:
        leader = self._leader()
        answers: list[Any] = [] if leader is not None else [None]
        if leader is not None:
            partition = self._cluster[leader].manager.partitions.get(TP)
            rules = partition is not None and partition.leader_epoch == self._cluster.states[TP].leader_epoch
            is_first = not any(earlier < sequence for earlier in self._unanswered)
            (self._retried_alone.add if rules and is_first else self._retried_alone.discard)(sequence)
            records = builders.make_batch(
                f"p{sequence}", producer=(PRODUCER, 0, sequence), timestamp=self._cluster.record_timestamp
            )
            self._cluster[leader].manager.append(-1, 5_000, {TP: records}, lambda told: answers.append(told[TP]))
        self._unanswered[sequence] = answers


class History:
    """A cluster, its controller, and everything it has promised so far."""

    def __init__(self, root: Path, min_insync: int) -> None:
        self.cluster = builders.Cluster(root, min_insync_replicas=min_insync)
        self.cluster.record_timestamp = self.cluster.clock.wall_ms()
        self.acknowledged: dict[int, str] = {}
        self.waiting: list[tuple[str, list]] = []
        self.produced = 0
        self.high_watermarks: dict[tuple[int, int, int], int] = {}
        self.cluster.lead(1)
        self.idempotent = IdempotentProducer(self.cluster, self.believed_leader)

    # What happens

    def send(self, _: object) -> None:
        self.idempotent.send()

    def retry(self, _: object) -> None:
        self.idempotent.take_answers()

    def lose_answers(self, _: object) -> None:
        self.idempotent.lose_answers()

    def produce(self, acks: int) -> None:
        leader = self.believed_leader()
        if leader is None:
            return
        self.produced += 1
        value = f"v{self.produced}"
        results = self.cluster[leader].produce(value, acks=acks)
        if acks == -1:
            self.waiting.append((value, results))

    def produce_to(self, number: int) -> None:
        broker = self.cluster[number]
        if broker.up and TP in broker.manager.partitions:
            self.produced += 1
            value = f"v{self.produced}"
            self.waiting.append((value, broker.produce(value)))

    def elect(self, number: int) -> None:
        """Move the leadership to a live member of the ISR."""
        state = self.cluster.states[TP]
        if number in state.isr and self.cluster[number].up:
            self.cluster.decide(number, state.isr)

    def shrink(self, number: int) -> None:
        """The controller takes a broker for dead that is not."""
        state = self.cluster.states[TP]
        rest = [member for member in state.isr if member != number and self.cluster[member].up]
        if number in state.isr and rest:
            self.cluster.decide(state.leader if state.leader in rest else rest[0], rest)

    def crash(self, number: int) -> None:
        if not self.cluster[number].up:
            return
        self.cluster.crash(number)
        state = self.cluster.states[TP]
        live = [member for member in state.isr if self.cluster[member].up]
        if live:
            self.cluster.decide(state.leader if state.leader in live else live[0], live)
        else:
            self.cluster.decide(NO_LEADER, state.isr)

    def restart(self, number: int) -> None:
        if self.cluster[number].up:
            return
        self.cluster.restart(number)
        state = self.cluster.states[TP]
        if state.leader == NO_LEADER and number in state.isr:
            self.cluster.decide(number, [number])
        self.tell(number)

    def tell(self, number: int) -> None:
        broker = self.cluster[number]
        if not broker.up:
            return
        led = TP in broker.manager.partitions and broker.partition().is_leader
        epoch = broker.partition().leader_epoch if TP in broker.manager.partitions else -1
        self.cluster.tell(number)
        partition = broker.partition()
        if partition.is_leader and (not led or partition.leader_epoch > epoch):
            self.note_acknowledged()
            self.check_holds_acknowledged(number)

    def carry(self, number: int) -> None:
        """One request or answer of one broker's fetchers gets through."""
        broker = self.cluster[number]
        if broker.up:
            for link in list(broker.links):
                if self.cluster.carry(broker, link):
                    return

    def write(self, number: int) -> None:
        """What one broker wants of ZooKeeper is done."""
        if self.cluster[number].up:
            self.cluster[number].isr_store.settle()

    def wait(self, milliseconds: int) -> None:
        """Time passes, and nothing moves but what is due at the brokers themselves."""
        self.cluster.clock.advance(milliseconds)
        for broker in self.cluster.brokers.values():
            if broker.up:
                broker.run_due()

    def hand_over(self, number: int) -> None:
        self.elect(number)
        for told in (number, 1, 2, 3):
            self.tell(told)

    # What must hold

    def believed_leader(self) -> int | None:
        leader = self.cluster.states[TP].leader
        return leader if leader != NO_LEADER and self.cluster[leader].up else None

    def note_acknowledged(self) -> None:
        for value, results in self.waiting:
            if results and results[0].error is ErrorCode.NONE:
                offset = results[0].base_offset
                assert self.acknowledged.setdefault(offset, value) == value
        self.waiting = [(value, results) for value, results in self.waiting if not results]

    def check_holds_acknowledged(self, number: int) -> None:
        values = self.cluster[number].values()
        for offset, value in self.acknowledged.items():
            assert values[offset : offset + 1] == [value], f"{value} is not at {offset} on leader {number}: {values}"

    def check(self) -> None:
        self.note_acknowledged()
        hosting = [broker for broker in self.cluster.brokers.values() if broker.up and TP in broker.manager.partitions]
        for broker in hosting:
            partition = broker.partition()
            if partition.is_leader:
                key = (broker.id, broker.epoch, partition.leader_epoch)
                assert partition.log.high_watermark >= self.high_watermarks.get(key, 0)
                self.high_watermarks[key] = partition.log.high_watermark
        for one in hosting:
            for other in hosting:
                agreed = min(one.log().high_watermark, other.log().high_watermark)
                assert one.values()[:agreed] == other.values()[:agreed]
        self.check_high_watermark_is_everywhere()

    def check_high_watermark_is_everywhere(self) -> None:
        state = self.cluster.states[TP]
        if state.leader == NO_LEADER or not self.cluster[state.leader].up:
            return
        leader = self.cluster[state.leader]
        if TP not in leader.manager.partitions or leader.partition().leader_epoch != state.leader_epoch:
            return
        partition = leader.partition()
        for member in {*state.isr, *partition.isr.maximal}:
            broker = self.cluster[member]
            if broker.up and TP in broker.manager.partitions:
                assert broker.log().log_end_offset >= partition.log.high_watermark

    def end_well(self) -> None:
        """Everything heals: one leader, equal logs, everything acknowledged there, the ISR full."""
        self.cluster.heal()
        for number in (1, 2, 3):
            self.restart(number)
        state = self.cluster.states[TP]
        if state.leader == NO_LEADER or not self.cluster[state.leader].up:
            live = [member for member in state.isr if self.cluster[member].up]
            self.cluster.decide(live[0], live)
        for number in (1, 2, 3):
            self.tell(number)
        self.cluster.advance(4_000)
        self.idempotent.lose_answers()
        self.idempotent.take_answers()
        self.cluster.advance(4_000)
        self.idempotent.take_answers()
        self.check()
        final = self.cluster.states[TP]
        assert sorted(final.isr) == [1, 2, 3]
        self.check_holds_acknowledged(final.leader)
        logs = [self.cluster[number].values() for number in (1, 2, 3)]
        assert logs[0] == logs[1] == logs[2]
        assert {self.cluster[number].log().high_watermark for number in (1, 2, 3)} == {len(logs[0])}
        assert self.idempotent.is_done
        assert [value for value in logs[0] if value[0] == "p"] == [f"p{n}" for n in range(self.idempotent.sent)]
        assert all(logs[0][offset] == f"p{number}" for number, offset in self.idempotent.acknowledged.items())


NUMBERS = st.sampled_from([1, 2, 3])
PAIRS = st.sampled_from([(1, 2), (1, 3), (2, 3)])


def events_of(kind: str, argument: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[str, object]]:
    return st.tuples(st.just(kind), argument)


COMMON = (
    events_of("produce", st.sampled_from([-1, -1, 1])),
    events_of("send", st.none()),
    events_of("retry", st.none()),
    events_of("carry", NUMBERS),
    events_of("carry", NUMBERS),
    events_of("tell", NUMBERS),
    events_of("hand_over", NUMBERS),
    events_of("write", NUMBERS),
    events_of("run", st.none()),
)
RARE = (
    events_of("produce_to", NUMBERS),
    events_of("lose_answers", st.none()),
    events_of("wait", st.sampled_from([50, 500, 6_000])),
    events_of("advance", st.sampled_from([600, 12_000])),
    events_of("elect", NUMBERS),
    events_of("shrink", NUMBERS),
    events_of("crash", NUMBERS),
    events_of("restart", NUMBERS),
    events_of("sever", PAIRS),
    events_of("heal", st.none()),
)
EVENTS = st.one_of(st.one_of(*COMMON), st.one_of(*COMMON), st.one_of(*RARE))


@given(min_insync=st.sampled_from([1, 2]), events=st.lists(EVENTS, min_size=10, max_size=80))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_acknowledged_records_survive_every_history(min_insync: int, events: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        history = History(Path(root), min_insync)
        try:
            for event, argument in events:
                play(history, event, argument)
                history.check()
            history.end_well()
        finally:
            history.cluster.close()


def play(history: History, event: str, argument: object) -> None:
    if event == "run":
        history.cluster.run()
    elif event == "heal":
        history.cluster.heal()
    elif event == "advance":
        history.cluster.advance(argument, step=500)  # type: ignore[arg-type]
    elif event == "sever":
        history.cluster.sever(*argument)  # type: ignore[misc]
    else:
        getattr(history, event)(argument)
