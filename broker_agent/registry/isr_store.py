"""The ISR writer: commits ISR changes of led partitions to their state znodes, and tells the controller to look.

One thread. A change is a multi of [own registration exists, set state at the known version, no other member has
restarted], pipelined with others, and sent only on the session that owns the registration; what the last part checks is
read before, once for the whole batch (incarnations.py). A write whose reply was lost is sent again at the same version
once there is contact again: had it taken effect, the version no longer fits, and what is read then shows our own
content. A version that was just read is never written on. What was certainly not written is kept apart from what may
have been.

Notifications: changes are collected, and one notification names them `quiet_ms` after the last one, or `latest_ms`
after the first. Kafka has 5 s and 60 s, looked at every 2.5 s; with 50 and 500 ms here, clients' metadata is fresh soon
and a burst is still one znode. A leader that does not know what became of its change has its partition named too: the
controller reads the state, and tells it what it did not know.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from regency.broker_agent.ports import IsrChange, IsrNotWritten, IsrOutcome, IsrUnknown, IsrWritten
from regency.broker_agent.registry import incarnations
from regency.broker_agent.registry.incarnations import PeerEpoch, Refused
from regency.history.files import HistoryWriter
from regency.history.records import Decision
from regency.model import znodes
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.errors import ZnodeMalformed
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch
from regency.model.ids import BrokerId, TopicPartition, ZkVersion
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.session import (
    Check,
    Create,
    MultiOutcome,
    Op,
    SessionEvent,
    SetData,
    ZkCode,
    ZkConnectionLost,
    ZkError,
    ZkSession,
    ZkSessionLost,
)

logger = logging.getLogger(__name__)

BATCH = 200
"""Changes sent before their replies are waited for."""

NOTIFY_PARTITIONS = 3000
"""Partitions named by one notification, well below ZooKeeper's 1 MiB."""

STATE_GONE = "the partition's state is gone"

Done = Callable[[IsrOutcome], None]


class _Submitted(msgspec.Struct):
    change: IsrChange
    done: Done
    generation: int
    state: LeaderIsrAndControllerEpoch
    taken: bool = False
    """It is in the batch that is being written."""
    sent: bool = False
    """It was sent, and no reply came: it may have been written."""
    withdrawn: bool = False


class _NotSent(msgspec.Struct, frozen=True):
    """Why nothing of a batch was sent."""

    error: ZkError


class IsrWriter:
    """Implements `IsrStore`. `submit` and the callbacks belong to the data loop; `run` is the writer's thread.

    `post` hands a call to the data loop; `owner` tells the generation of the session that owns this broker's
    registration, or None while there is none; `decided` hears of every written change (for the history); by
    `peer_epoch` those who join are judged whose agent marks no incarnation.
    """

    def __init__(
        self,
        broker: BrokerId,
        session: ZkSession,
        clock: Clock,
        post: Callable[[Callable[[], None]], None],
        owner: Callable[[], int | None],
        decided: Callable[[IsrChange, IsrWritten], None],
        peer_epoch: PeerEpoch,
        quiet_ms: int = 50,
        latest_ms: int = 500,
    ) -> None:
        self._own_path = znode_paths.broker(broker)
        self._session = session
        self._clock = clock
        self._post = post
        self._owner = owner
        self._decided = decided
        self._peer_epoch = peer_epoch
        self._quiet_ms = quiet_ms
        self._latest_ms = latest_ms
        self._wake = threading.Condition()
        self._waiting: deque[_Submitted] = deque()
        self._open: dict[TopicPartition, list[_Submitted]] = {}
        """Changes without an outcome."""
        self._stopping = False
        self._held_back = False
        self._asked: list[TopicPartition] = []
        self._unannounced: dict[TopicPartition, None] = {}
        self._hindrance = ""
        """Why the last change that was not written was not; told once."""
        self._first_change_ms = 0
        self._last_change_ms = 0
        session.listen(self._on_session)

    def submit(self, change: IsrChange, done: Done) -> None:
        """Write the change; `done` is called on the data loop, once, when the outcome is known. Never blocks."""
        generation = self._owner()
        if generation is None:
            self._post(lambda: done(IsrNotWritten("this broker is not registered")))
            return
        state = LeaderIsrAndControllerEpoch(
            LeaderAndIsr(change.leader, change.leader_epoch, change.isr, change.zk_version), change.controller_epoch
        )
        with self._wake:
            pending = _Submitted(change, done, generation, state)
            self._waiting.append(pending)
            self._open.setdefault(change.topic_partition, []).append(pending)
            self._wake.notify()

    def withdraw(self, topic_partition: TopicPartition) -> bool:
        """Give up changes of a partition that were not sent. Returns whether none is under way, or may have been sent.

        A state znode begins at version 0 again where its topic is created again: a change of the old one would fit.
        """
        with self._wake:
            open_ones = self._open.pop(topic_partition, [])
            left = [each for each in open_ones if each.taken or each.sent]
            if left:
                self._open[topic_partition] = left
            gone = [each for each in open_ones if not (each.taken or each.sent)]
            for each in gone:
                each.withdrawn = True
        for each in gone:
            self._post(partial(each.done, IsrNotWritten("its replica is deleted")))
        return not left

    def ask(self, topic_partition: TopicPartition) -> None:
        """Name the partition in a notification: the controller reads its state and tells its leader what is new."""
        with self._wake:
            self._asked.append(topic_partition)
            self._wake.notify()

    def stop(self) -> None:
        """Let `run` return; changes that wait get no outcome."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def run(self) -> None:
        """Write what is submitted, until `stop`."""
        while True:
            batch = self._next_batch()
            if batch is None:
                return
            if batch:
                self._write(batch)
            self._announce()

    def _on_session(self, event: SessionEvent, generation: int) -> None:
        del event, generation
        with self._wake:
            self._held_back = False
            self._wake.notify()

    def _next_batch(self) -> list[_Submitted] | None:
        with self._wake:
            while not self._stopping:
                for topic_partition in self._asked:
                    self._to_announce(topic_partition)
                self._asked.clear()
                due_in_ms = self._announcement_due_in_ms()
                if self._waiting and not self._held_back:
                    batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                    for pending in batch:
                        pending.taken = True
                    return [pending for pending in batch if not pending.withdrawn]
                if due_in_ms is not None and due_in_ms <= 0 and not self._held_back:
                    return []
                wait_ms = due_in_ms if due_in_ms is not None and not self._held_back else None
                self._wake.wait(None if wait_ms is None else wait_ms / 1000)
            return None

    def _hold_back(self) -> None:
        """Send nothing more until the session has news; there may have been some already."""
        with self._wake:
            self._held_back = not self._session.connected

    def _write(self, batch: Sequence[_Submitted]) -> None:
        again: list[_Submitted] = []
        for generation in sorted({pending.generation for pending in batch}):
            of_generation = [pending for pending in batch if pending.generation == generation]
            crash_point("agent.isr.before_write")
            outcomes = self._send(of_generation, generation)
            for pending, outcome in zip(of_generation, outcomes, strict=True):
                resolved = self._resolve(pending, outcome)
                if resolved is None:
                    again.append(pending)
                else:
                    self._finish(pending, resolved)
        if again:
            crash_point("agent.isr.before_held_back")
            with self._wake:
                for pending in again:
                    pending.taken = False
                self._waiting.extendleft(reversed(again))
            self._hold_back()

    def _withdraw(self, pending: _Submitted, why: str) -> IsrOutcome | None:
        """What became of a change that cannot be written any more; None: not known, look when there is contact."""
        return self._read_back(pending) if pending.sent else IsrNotWritten(why)

    def _send(
        self, batch: Sequence[_Submitted], generation: int
    ) -> Sequence[MultiOutcome | ZkError | _NotSent | Refused]:
        try:
            guards = incarnations.guards(self._session, [pending.change for pending in batch], self._peer_epoch)
            crash_point("agent.isr.after_guards_read")
            multis = [
                self._multi(pending, guard)
                for pending, guard in zip(batch, guards, strict=True)
                if not isinstance(guard, Refused)
            ]
            outcomes = iter(self._session.multi_pipelined(multis, generation=generation))
        except ZkError as error:
            return [_NotSent(error)] * len(batch)
        return [guard if isinstance(guard, Refused) else next(outcomes) for guard in guards]

    def _multi(self, pending: _Submitted, checks: Sequence[Check]) -> Sequence[Op]:
        change = pending.change
        path = znode_paths.partition_state(change.topic_partition)
        return (
            Check(self._own_path, None),
            SetData(path, znodes.encode_state(pending.state), change.zk_version),
            *checks,
        )

    def _resolve(self, pending: _Submitted, outcome: MultiOutcome | ZkError | _NotSent | Refused) -> IsrOutcome | None:
        """The outcome to report, or None: not known, send again when there is contact."""
        if isinstance(outcome, MultiOutcome):
            return self._resolve_reply(pending, outcome)
        if isinstance(outcome, Refused):
            return self._read_back(pending) if outcome.conflict else self._withdraw(pending, outcome.why)
        if isinstance(outcome, _NotSent):
            error = outcome.error
        else:
            error, pending.sent = outcome, True
        if isinstance(error, ZkConnectionLost):
            return None
        if isinstance(error, ZkSessionLost):
            why = "the session that owned the registration is gone"
            return IsrUnknown(why) if pending.sent else IsrNotWritten(why)
        return self._withdraw(pending, str(error))

    def _resolve_reply(self, pending: _Submitted, outcome: MultiOutcome) -> IsrOutcome | None:
        if outcome.ok:
            stat = outcome.results[1].stat
            return IsrWritten(ZkVersion(pending.change.zk_version + 1 if stat is None else stat.version))
        if outcome.failed_index == 0:
            return self._withdraw(pending, "this broker's registration is gone")
        if outcome.failed_index > 1:
            return self._withdraw(pending, "a member restarted at this moment")
        code = outcome.results[outcome.failed_index].code
        if code is ZkCode.NO_NODE:
            return IsrNotWritten(STATE_GONE)
        if code is not ZkCode.BAD_VERSION:
            return self._withdraw(pending, f"ZooKeeper refused to write the state: {code.value}")
        return self._read_back(pending)

    def _read_back(self, pending: _Submitted) -> IsrOutcome | None:
        try:
            return self._compare(pending)
        except ZkConnectionLost:
            return None
        except (ZkError, ZnodeMalformed) as error:
            return IsrUnknown(str(error))

    def _compare(self, pending: _Submitted) -> IsrOutcome:
        path = znode_paths.partition_state(pending.change.topic_partition)
        self._session.sync(path)
        held = self._session.read(path)
        if held is None:
            return IsrNotWritten(STATE_GONE)
        version = ZkVersion(held.stat.version)
        state = znodes.decode_state(path, held.data, zk_version=version)
        wanted = msgspec.structs.replace(
            pending.state, leader_and_isr=msgspec.structs.replace(pending.state.leader_and_isr, zk_version=version)
        )
        if state == wanted:
            return IsrWritten(version)
        if version == pending.change.zk_version and self._session.generation == pending.generation:
            return IsrNotWritten("it was sent, but never arrived, and shall not be sent again")
        found = state.leader_and_isr
        return IsrUnknown(
            f"another process wrote the state: leader {found.leader}, leader epoch {found.leader_epoch}, "
            f"isr {list(found.isr)}, version {version} instead of {pending.change.zk_version}"
        )

    def _finish(self, pending: _Submitted, outcome: IsrOutcome) -> None:
        change = pending.change
        with self._wake:
            others = [each for each in self._open.pop(change.topic_partition, []) if each is not pending]
            if others:
                self._open[change.topic_partition] = others
        wanted = list(change.isr)
        if isinstance(outcome, IsrWritten):
            self._hindrance = ""
            logger.info("isr of %s is now %s: %s", change.topic_partition, wanted, change.why)
            self._decided(change, outcome)
            self._to_announce(change.topic_partition)
        elif isinstance(outcome, IsrUnknown):
            told = "isr of %s may not be %s (%s): waiting for the controller"
            logger.warning(told, change.topic_partition, wanted, outcome.why)
        elif outcome.why != self._hindrance:
            self._hindrance = outcome.why
            told = "isr of %s cannot become %s, which is tried again and again: %s"
            logger.info(told, change.topic_partition, wanted, outcome.why)
        self._post(lambda: pending.done(outcome))

    def _to_announce(self, topic_partition: TopicPartition) -> None:
        now = self._clock.monotonic_ms()
        if not self._unannounced:
            self._first_change_ms = now
        self._last_change_ms = now
        self._unannounced[topic_partition] = None

    def _announcement_due_in_ms(self) -> int | None:
        if not self._unannounced:
            return None
        due = min(self._last_change_ms + self._quiet_ms, self._first_change_ms + self._latest_ms)
        return max(0, due - self._clock.monotonic_ms())

    def _announce(self) -> None:
        due_in_ms = self._announcement_due_in_ms()
        if due_in_ms is None or due_in_ms > 0:
            return
        named = list(self._unannounced)[:NOTIFY_PARTITIONS]
        notification = Create(znode_paths.isr_change_prefix(), znodes.encode_isr_change(named), sequential=True)
        crash_point("agent.isr_notification.before_write")
        try:
            self._session.multi([notification])
        except ZkError as error:
            logger.info("cannot tell the controller of %d changed partitions yet: %s", len(named), error)
            self._hold_back()
            self._last_change_ms = self._first_change_ms = self._clock.monotonic_ms()
            return
        for partition in named:
            del self._unannounced[partition]


class IsrHistory:
    """Numbers decisions over the life of the agent's files. One thread."""

    def __init__(self, broker: BrokerId, writer: HistoryWriter, clock: Clock) -> None:
        self._broker = broker
        self._writer = writer
        self._clock = clock
        self._number = writer.last_number()

    def record(self, change: IsrChange, written: IsrWritten) -> None:
        """Record one change that is in ZooKeeper now."""
        self._number += 1
        grown = len(change.isr) > len(change.previous)
        self._writer.write(
            [
                Decision(
                    controller_epoch=change.controller_epoch,
                    number=self._number,
                    event="isr_expand" if grown else "isr_shrink",
                    subject=str(change.topic_partition),
                    from_=f"isr {list(change.previous)}",
                    to=f"isr {list(change.isr)}, leader epoch {change.leader_epoch}, version {written.zk_version}",
                    why=change.why,
                    time_ms=self._clock.wall_ms(),
                    source=self._broker,
                    role="agent",
                    leader=self._broker,
                    isr=change.isr,
                    leader_epoch=change.leader_epoch,
                    version=written.zk_version,
                )
            ]
        )
