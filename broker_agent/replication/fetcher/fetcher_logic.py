"""What a fetcher asks of one leader next, and what a reply does: per partition state, truncation, out of range, delays.

Passive, on the data loop: `next(now)` says what to send or how long to wait, `on_reply` and `on_failure` take in what
came of it. One bad partition never stops the others. A reply of thousands of partitions is taken in by and by, a slice
in each step of the loop; no disk is waited for. Source: KIP-101, 279, 320, 595; AbstractFetcherThread's tables.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from regency.broker_agent.log.errors import CutNotPrepared, LogBusy, LogStorageError, RecordsRejected
from regency.broker_agent.replication.fetcher.follow_state import (
    CatchingUp,
    FollowState,
    Phase,
    ReceivedBytes,
    truncation_point,
)
from regency.broker_agent.replication.fetcher.throttle import ReplicationThrottle
from regency.broker_agent.replication.partition import Partition
from regency.kafka.fetching.session import ClientFetchSession
from regency.kafka.fetching.values import (
    NOT_LISTED,
    NOT_READY,
    SESSION_LOST,
    EpochEndOffset,
    FetchedPartition,
    FetcherLimits,
    FetchPartition,
    FetchPlan,
    ListedOffset,
    OffsetsPlan,
    OffsetsReply,
    Pause,
    Plan,
    Reply,
)
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.ids import BrokerEpoch, LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

logger = logging.getLogger(__name__)

_FIRST_RETRY_MS = 50
"""First delay where the leader seems not to have the LeaderAndIsr we have; doubles up to the backoff."""

_SLICE_MS = 10
"""Time after which the rest of a reply waits for the next step of the data loop."""
_CUTS_AT_ONCE = 32
"""Logs cut off in one step at most, and made known to the disk together."""

_STARTS_AT_ONCE = 100
"""Partitions whose leader's start is asked for at once: the answer tells of producers, too."""

LATEST, EARLIEST = -1, -2

Settle = Callable[[Iterable[TopicPartition], Callable[[], None]], None]
"""Has the disk know where the logs of these partitions were or will be cut off, then makes the call, on the data loop.
"""


class _Part(NamedTuple):
    """One partition's part of a reply, and what takes it in."""

    state: FollowState
    take: Callable[[FollowState, Any, int], None]
    what: FetchedPartition | ListedOffset


class _Unsettled(NamedTuple):
    """A partition that waits for the disk, the phase it is in then, and what has to be taken in then."""

    state: FollowState
    phase: Phase
    part: _Part | None


class FetcherLogic:
    """Followed partitions of one leader, one request at a time."""

    def __init__(
        self,
        name: str,
        limits: FetcherLimits,
        broker_epoch: Callable[[], BrokerEpoch],
        clock: Clock,
        settle: Settle,
        failed: dict[TopicPartition, str] | None = None,
        throttle: ReplicationThrottle | None = None,
        received: ReceivedBytes | None = None,
    ) -> None:
        self._name = name
        self._received = received or ReceivedBytes()
        self._limits = limits
        self._broker_epoch = broker_epoch
        self._states: dict[TopicPartition, FollowState] = {}
        self._session = ClientFetchSession()
        self._delays: list[tuple[int, int, TopicPartition]] = []
        self._numbers = count()
        self._asking: dict[TopicPartition, FollowState] = {}
        """Partitions that need the leader's end or start before they can go on."""
        self._clock = clock
        self._settle = settle
        self._rest: deque[_Part] = deque()
        """What has come and is not taken in yet."""
        self._unsettled: list[_Unsettled] = []
        self.on_settled: Callable[[], None] = _nobody
        """Called when there may be something to send, as partitions need not wait for the disk any more."""
        self._resume_at: int | None = None
        self._catching_up = CatchingUp(throttle)
        self.failed = {} if failed is None else failed
        """Partitions given up until the next LeaderAndIsr, and why; a broker's fetchers share one table."""
        self.connection_failures = 0
        """Exchanges in a row that failed."""

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._states

    def lag(self, topic_partition: TopicPartition) -> int | None:
        """Records a partition was behind its leader's high watermark at the last answer; None before the first."""
        state = self._states.get(topic_partition)
        return None if state is None else state.lag

    # Membership

    def add(self, replica: Partition, epoch: LeaderEpoch) -> None:
        """Follow from the replica's end, in this leader epoch. The same again changes nothing unless it failed.

        `go_on` has to be called afterwards: the replica may wait for the disk.
        """
        name = replica.topic_partition
        self.failed.pop(name, None)
        held = self._states.get(name)
        if held is not None and held.epoch == epoch:
            return
        self._forget(name)
        state = self._states[name] = FollowState(replica, epoch)
        self._session.changed(name)
        if not replica.log.is_settled:
            self._wait_until_settled(state)

    def remove(self, topic_partition: TopicPartition) -> None:
        """Follow no more. What a running request brings for it is ignored."""
        self.failed.pop(topic_partition, None)
        self._drop(topic_partition)

    def close(self) -> None:
        """Follow nothing any more: logs may be closed, and what is to be settled of them would never be."""
        for name in list(self._states):
            self._drop(name)

    def restart(self) -> None:
        """The leader is reached again: a new session, and no waiting for the old connection's sake."""
        self._rest.clear()
        self._session.reset()
        self._resume_at = None

    def _drop(self, topic_partition: TopicPartition) -> None:
        if self._states.pop(topic_partition, None) is not None:
            self._forget(topic_partition)
            self._session.left(topic_partition)

    def _forget(self, topic_partition: TopicPartition) -> None:
        self._asking.pop(topic_partition, None)
        self._catching_up.forget(topic_partition)

    # Requests

    def next(self, now_ms: int) -> Plan | Pause:
        """What to send now, or how long to wait; not at all while `go_on` has something to do."""
        if self._rest:
            return Pause(0)
        if self._resume_at is not None:
            if now_ms < self._resume_at:
                return Pause(self._resume_at - now_ms)
            self._resume_at = None
        self._release(now_ms)
        plan = self._offsets_plan()
        if plan is not None:
            return plan
        return self._fetch_plan(now_ms)

    def _release(self, now_ms: int) -> None:
        while self._delays and self._delays[0][0] <= now_ms:
            due, _, name = heapq.heappop(self._delays)
            state = self._states.get(name)
            if state is not None and state.delayed_until == due:
                self._resume(name, state)

    def _resume(self, name: TopicPartition, state: FollowState) -> None:
        state.delayed_until = None
        self._session.changed(name)
        self._catching_up.resumed(name)

    def release_throttled(self) -> None:
        """Throttles have changed: what they hold back is looked at again."""
        for name in self._catching_up.held_back:
            self._resume(name, self._states[name])

    def _offsets_plan(self) -> OffsetsPlan | None:
        for phase, timestamp in ((Phase.LATEST, LATEST), (Phase.EARLIEST, EARLIEST)):
            asked = [(name, state.epoch) for name, state in self._asking.items() if state.phase is phase]
            if asked:
                return OffsetsPlan(timestamp, asked[:_STARTS_AT_ONCE] if phase is Phase.EARLIEST else asked)
        return None

    def _fetch_plan(self, now_ms: int) -> FetchPlan | Pause:
        self._catching_up.hold_back(now_ms, self._is_ready, self._wait)
        ready = self._session.candidates(self._states)
        wanted = []
        for name in ready:
            if self._is_ready(name):
                state = self._states[name]
                state.requested = state.offset
                wanted.append(self._entry(state))
        if self._session.would_be_empty(wanted):
            return Pause(self._delays[0][0] - now_ms if self._delays else None)
        session_id, epoch, forgotten = self._session.build(wanted)
        return FetchPlan(self._broker_epoch(), session_id, epoch, wanted, forgotten, self._session.names, self._limits)

    def _is_ready(self, name: TopicPartition) -> bool:
        state = self._states[name]
        return state.delayed_until is None and state.phase is Phase.FETCHING

    def _entry(self, state: FollowState) -> FetchPartition:
        replica = state.replica
        return FetchPartition(
            replica.topic_partition,
            replica.topic_id,
            state.offset,
            self._limits.partition_max_bytes,
            state.epoch,
            replica.latest_epoch,
            replica.log.log_start_offset,
        )

    # Replies

    def on_failure(self, now_ms: int, why: str) -> None:
        """The exchange failed and nothing is known of it: a new session after the backoff."""
        crash_point("fetcher.failure.before_taken")
        self.connection_failures += 1
        if self.connection_failures == 1:
            logger.warning("%s: %s Trying again every %d ms.", self._name, why, self._limits.backoff_ms)
        self._session.failed()
        self._resume_at = now_ms + self._limits.backoff_ms

    def on_reply(self, plan: Plan, reply: Reply, now_ms: int) -> None:
        """Take in the answer to `plan`, the last thing `next` returned."""
        if self.connection_failures:
            logger.info("%s: answered again after %d failed attempts", self._name, self.connection_failures)
            self.connection_failures = 0
        if isinstance(reply, OffsetsReply):
            crash_point("fetcher.offsets.before_taken")
            answers = dict(reply.partitions)
            for name, epoch in plan.partitions if isinstance(plan, OffsetsPlan) else ():
                state = self._asking.get(name)
                if state is not None and state.epoch == epoch:
                    self._rest.append(_Part(state, self._take_offset, answers.get(name, NOT_LISTED)))
            self.go_on(now_ms)
            return
        if reply.error is not ErrorCode.NONE:
            was_incremental = isinstance(plan, FetchPlan) and plan.session_epoch > 0
            self._refused(reply.error, now_ms, at_once=was_incremental and reply.error in SESSION_LOST)
            return
        crash_point("fetcher.records.before_taken")
        self._session.answered(reply.session_id)
        for name, fetched in reply.partitions:
            state = self._states.get(name)
            if state is not None:
                self._rest.append(_Part(state, self._take_fetched, fetched))
        self.go_on(now_ms)

    def go_on(self, now_ms: int) -> None:
        """Take in the next slice of what has come, and have the disk know of the logs it cut off."""
        stop_ms = self._clock.monotonic_ms() + _SLICE_MS
        while self._rest and len(self._unsettled) < _CUTS_AT_ONCE and self._clock.monotonic_ms() < stop_ms:
            part = self._rest.popleft()
            if self._follows(part.state) and part.state.phase is not Phase.SETTLING:
                self._attempt(part, now_ms)
        if self._unsettled:
            waiting, self._unsettled = self._unsettled, []
            self._settle([each.state.replica.topic_partition for each in waiting], partial(self._settled, waiting))

    def _follows(self, state: FollowState) -> bool:
        """Whether the partition is still followed in this leader epoch."""
        return self._states.get(state.replica.topic_partition) is state

    def _wait_until_settled(self, state: FollowState, part: _Part | None = None) -> None:
        name = state.replica.topic_partition
        self._unsettled.append(_Unsettled(state, state.phase, part))
        state.phase = Phase.SETTLING
        self._asking.pop(name, None)
        self._session.left(name)

    def _settled(self, waited: Iterable[_Unsettled]) -> None:
        for state, phase, part in waited:
            if not self._follows(state):
                continue
            name = state.replica.topic_partition
            state.phase = phase
            if phase is not Phase.FETCHING:
                self._asking[name] = state
            if part is not None:
                self._rest.append(part)
            else:
                self._session.changed(name)
        if self._rest:
            self.go_on(self._clock.monotonic_ms())
        self.on_settled()

    def _refused(self, error: ErrorCode, now_ms: int, *, at_once: bool) -> None:
        self._session.refused(error)
        if not at_once:
            logger.warning("%s: fetch refused with %s", self._name, error.name)
            self._resume_at = now_ms + self._limits.backoff_ms

    def _attempt(self, part: _Part, now_ms: int) -> None:
        """Take in one partition's part of a reply; whatever goes wrong stays with that partition."""
        state = part.state
        try:
            part.take(state, part.what, now_ms)
            if not state.replica.log.is_settled and self._follows(state):
                self._wait_until_settled(state)
        except CutNotPrepared:
            self._wait_until_settled(state, part)
        except RecordsRejected as error:
            self._complain(state, f"sent unusable records: {error}")
            self._answered(state)
            self._delay(state, now_ms, self._limits.backoff_ms)
        except LogBusy as error:
            self._complain(state, f"was answered in vain: {error}")
            self._answered(state)
            self._moved(state)  # a part may have been done
            self._delay(state, now_ms, self._limits.backoff_ms)
        except LogStorageError as error:
            self._fail(state, str(error))
        except Exception as error:  # a defect met by one partition must not stop the others
            logger.exception("%s: taking in a reply of %s failed", state.replica.topic_partition, self._name)
            self._fail(state, f"unexpected {type(error).__name__}: {error}")

    def _take_fetched(self, state: FollowState, fetched: FetchedPartition, now_ms: int) -> None:
        if state.requested != state.offset:
            return
        error = fetched.error
        if error is ErrorCode.NONE:
            if fetched.diverging is not None:
                self._truncate(state, fetched.diverging, fetched.log_start_offset, now_ms)
            else:
                self._append(state, fetched, now_ms)
        elif error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._ask(state, Phase.LATEST)
        else:
            self._take_error(state, error, now_ms)

    def _take_error(self, state: FollowState, error: ErrorCode, now_ms: int) -> None:
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._fail(state, f"the leader is beyond leader epoch {state.epoch}", logging.DEBUG)
            return
        backoff = self._limits.backoff_ms
        if error in NOT_READY:
            self._delay(state, now_ms, min(backoff, _FIRST_RETRY_MS << min(state.refusals, 10)))
            return
        self._complain(state, f"answered {error.name}")
        self._delay(state, now_ms, backoff)

    def _complain(self, state: FollowState, what: str) -> None:
        """Once per trouble, not once per attempt."""
        if state.refusals == 0:
            logger.warning("%s: %s %s", state.replica.topic_partition, self._name, what)

    def _append(self, state: FollowState, fetched: FetchedPartition, now_ms: int) -> None:
        replica = state.replica
        log_start = replica.log.log_start_offset
        replica.append_fetched(fetched, state.offset)
        self._received.total += len(fetched.records)
        if replica.is_adding:
            self._received.adding += len(fetched.records)
        state.lag = max(0, fetched.high_watermark - replica.log.log_end_offset)
        self._catching_up.count(replica.topic_partition, fetched, replica.log.log_end_offset, now_ms)
        if replica.log.log_end_offset != state.offset:
            self._moved(state)
        elif fetched.records:
            self._complain(state, "sent records that add nothing")
            self._delay(state, now_ms, self._limits.backoff_ms)
        else:
            state.refusals = 0
            if replica.log.log_start_offset != log_start:
                self._session.changed(replica.topic_partition)  # for the leader's low watermark

    def _truncate(self, state: FollowState, diverging: EpochEndOffset, leader_start: Offset, now_ms: int) -> None:
        """Cut to where both logs may still agree; the next fetch asks again, until they do.

        Where nothing of ours remains, all that the leader has is copied. So it is where it has forgotten our epoch, and
        names its log start: nothing says that both agree below, and what is there would be read, and its producers
        believed, once we lead. But a log that is cut at its own start stays there: it may be in sync, and what is
        committed must not be above its end.
        """
        replica = state.replica
        before = (replica.log.log_end_offset, replica.latest_epoch)
        target = truncation_point(replica.log, diverging)
        if target is not None:
            is_forgotten = target == diverging.end_offset == leader_start > replica.log.log_start_offset
            if is_forgotten or target < replica.log.log_start_offset:
                state.starts_over = True
                self._ask(state, Phase.EARLIEST)
                return
            self._cut(replica, target)
        if target is None or (replica.log.log_end_offset, replica.latest_epoch) == before:
            self._delay(state, now_ms, self._limits.backoff_ms)
            return
        if replica.log.log_end_offset < before[0]:
            logger.info(
                "truncated %s from %d to %d: epoch %d of its leader ends at %d",
                replica.topic_partition,
                before[0],
                target,
                diverging.leader_epoch,
                diverging.end_offset,
            )
        self._moved(state)

    def _take_offset(self, state: FollowState, listed: ListedOffset, now_ms: int) -> None:
        """Out of range (KIP-101's fallback): cut to a leader that ends earlier, start over at one that begins later.

        Where the leader ends below our log start nothing remains of ours, so all that the leader has is copied: begun
        at its end, this replica would be in sync at once, and once it led none would keep what is below.
        """
        if listed.error is not ErrorCode.NONE or listed.offset < 0:
            self._answered(state)
            self._take_error(state, listed.error or ErrorCode.UNKNOWN_SERVER_ERROR, now_ms)
            return
        replica = state.replica
        end, epoch = replica.log.log_end_offset, replica.latest_epoch
        if state.phase is Phase.LATEST:
            state.starts_over = listed.offset < replica.log.log_start_offset
            if listed.offset >= end or state.starts_over:
                state.phase = Phase.EARLIEST
                return
            self._cut(replica, listed.offset)
            logger.warning("truncated %s from %d to its leader's end %d", replica.topic_partition, end, listed.offset)
        elif listed.offset > end or state.starts_over:
            logger.warning(
                "dropping all of %s, which holds offsets %d to %d: its leader begins at %d%s",
                replica.topic_partition,
                replica.log.log_start_offset,
                end,
                listed.offset,
                " and has nothing of that" if state.starts_over else "",
            )
            replica.log.truncate_fully_and_start_at(listed.offset, listed.producers)
            state.starts_over = False
        self._answered(state)
        if (replica.log.log_end_offset, replica.latest_epoch) == (end, epoch):
            self._delay(state, now_ms, self._limits.backoff_ms)
        else:
            self._moved(state)

    def _cut(self, replica: Partition, target: Offset) -> None:
        crash_point("fetcher.truncation.before_cut")
        replica.log.truncate_to(target)
        crash_point("fetcher.truncation.after_cut")

    # What becomes of a partition

    def _moved(self, state: FollowState) -> None:
        """Its end changed: ask from there, after the others."""
        name = state.replica.topic_partition
        state.offset = state.replica.log.log_end_offset
        state.requested = None
        state.refusals = 0
        self._states[name] = self._states.pop(name)
        self._session.changed(name)

    def _ask(self, state: FollowState, phase: Phase) -> None:
        state.phase = phase
        state.requested = None
        self._asking[state.replica.topic_partition] = state
        self._session.left(state.replica.topic_partition)

    def _answered(self, state: FollowState) -> None:
        state.phase = Phase.FETCHING
        self._asking.pop(state.replica.topic_partition, None)

    def _delay(self, state: FollowState, now_ms: int, milliseconds: int) -> None:
        state.refusals += 1
        self._wait(state.replica.topic_partition, now_ms + milliseconds)

    def _wait(self, name: TopicPartition, until_ms: int) -> None:
        state = self._states[name]
        state.requested = None
        state.delayed_until = until_ms
        heapq.heappush(self._delays, (until_ms, next(self._numbers), name))
        self._session.left(name)

    def _fail(self, state: FollowState, why: str, level: int = logging.WARNING) -> None:
        """`level` is low for what every change of leaders brings."""
        name = state.replica.topic_partition
        logger.log(level, "%s is not followed until the controller says so again: %s", name, why)
        self._drop(name)
        self.failed[name] = why


def _nobody() -> None:
    pass
