"""The controller: races, takes over, routes events to their handlers, resigns. Routing and order, nothing else.

All of it runs on one thread. Other threads put events, and read `view`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from regency.controller import routes
from regency.controller.brokers.notifications import LogDirsFailed
from regency.controller.channel.channel_manager import BrokerBacklog, OpenChannels
from regency.controller.channel.messages import Origin
from regency.controller.elections.leader_elections import ElectionsAsked
from regency.controller.events import (
    BrokersChanged,
    ConfigsChanged,
    ControllerChanged,
    DeletionsAsked,
    Event,
    EventQueue,
    IsrsChanged,
    OfTerm,
    Request,
    SessionEnded,
    ShutDown,
    TopicsChanged,
)
from regency.controller.failover import Phases, take_over
from regency.controller.reassignment.requests import ReassignmentsAsked
from regency.controller.state.reports import ReplicaReports
from regency.controller.store.access import Counters, EpochBehind, Fence, Retry
from regency.controller.store.cluster_store import ClusterStore
from regency.controller.store.elector import Elector
from regency.controller.store.topics import TopicWatches
from regency.controller.term import Term, event_of, out_of_race_ms
from regency.history.files import HistoryWriter
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.errors import RegencyError, ZnodeMalformed
from regency.model.ids import NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch
from regency.model.settings import BrokerSettings
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import SessionEvent, WatchCallback, WatchMode, ZkError, ZkSession, ZkSessionLost

logger = logging.getLogger(__name__)

FIRST_RETRY_MS = 100
LAST_RETRY_MS = 10_000
FORGIVEN_AFTER_MS = 60_000
"""A failure this long after the one before begins a new series."""
_SESSION_ENDED, _PROCESS_ENDS = "the session with ZooKeeper ended", "this process ends"


class View(msgspec.Struct, frozen=True):
    """What other threads may know: replaced as a whole after every event."""

    ruling: bool = False
    epoch: ControllerEpoch = ControllerEpoch(0)
    """Of the term, or of the last one here; 0 before the first."""
    incumbent: BrokerId = NO_LEADER
    """Who rules as far as is known."""
    blocked: str = ""
    """Why no controller can be elected before ZooKeeper is mended, and what to do; empty where nothing is known."""
    brokers: Mapping[BrokerId, BrokerEpoch] = {}
    topics: int = 0
    partitions: int = 0
    offline_partitions: int = 0


class Controller:
    """One candidate of one broker, over one ZkSession."""

    def __init__(
        self,
        settings: BrokerSettings,
        session: ZkSession,
        queue: EventQueue,
        *,
        open_channels: OpenChannels,
        clock: Clock,
        history: HistoryWriter | None = None,
    ) -> None:
        self.view = View()
        self.reports = ReplicaReports()
        self.counters = Counters()
        self.failover: tuple[tuple[str, int], ...] = ()
        """Parts of the last failover here, with their milliseconds."""
        self.in_race = False
        """Whether its last look at /controller went well: then it rules, or hears when it may race. Any thread."""
        self.retry = Retry(session)
        self._settings = settings
        self._endpoint = ""
        """host:port at which agents reach this controller, once it has started."""
        self._session = session
        self._queue = queue
        self._open_channels = open_channels
        self._clock = clock
        self._history = history
        self._elector = Elector(session, self.retry, settings.broker_id, clock)
        self._term: Term | None = None
        self._fence: Fence | None = None
        self._failures = 0
        self._last_failure = ""
        self._last_failure_ms = 0
        self._race_at_ms = 0

    @property
    def unacknowledged(self) -> int:
        """Desired states that no agent has acknowledged yet. Any thread."""
        term = self._term
        return 0 if term is None else term.channels.unacknowledged

    @property
    def backlogs(self) -> list[BrokerBacklog]:
        """How far every broker is with what it is sent, by id; none where this controller does not rule. Any thread."""
        term = self._term
        return [] if term is None else term.channels.backlogs()

    @property
    def term(self) -> Term | None:
        """The term it rules in, for what other threads may ask of one; None where it does not rule. Any thread.

        Also None as soon as the session that won is over, before the controller's thread comes to it: a process that
        was stopped for a while must not be counted besides its successor.
        """
        term, session = self._term, self._session
        if term is None or not self.view.ruling:
            return None
        holds = session.session_id != 0 and session.generation == term.store.fence.generation
        return term if holds else None

    @property
    def in_contact(self) -> bool:
        """Whether ZooKeeper can be asked now. Any thread."""
        return self._session.connected

    def start(self, endpoint: str) -> None:
        """Listen to the session, arm the watches that stay, and ask for the first race. Raises ZkError.

        `endpoint` is the host:port at which agents reach this controller.
        """
        self._endpoint = endpoint
        self._session.listen(self._on_session_event)
        for path in (paths.CONTROLLER, paths.CONTROLLER_EPOCH):
            self._watch(path, WatchMode.PERSISTENT, ControllerChanged())
        self._watch(paths.TOPICS, WatchMode.PERSISTENT, TopicsChanged())
        recursive = WatchMode.PERSISTENT_RECURSIVE
        self._watch(paths.BROKER_IDS, recursive, BrokersChanged())
        self._watch(paths.ISR_CHANGE_NOTIFICATION, recursive, IsrsChanged())
        self._watch(paths.REASSIGN_PARTITIONS, WatchMode.PERSISTENT, ReassignmentsAsked())
        self._watch(paths.DELETE_TOPICS, WatchMode.PERSISTENT, DeletionsAsked())
        self._watch(paths.PREFERRED_ELECTION, WatchMode.PERSISTENT, ElectionsAsked())
        self._watch(paths.LOG_DIR_EVENT_NOTIFICATION, recursive, LogDirsFailed())
        self._watch(paths.CONFIG_CHANGES, recursive, ConfigsChanged())
        self._queue.put(ControllerChanged())

    def process(self, event: Event) -> None:
        """React to one event. Never raises but for what ends the process."""
        self.counters.events[event.cause] += 1
        try:
            self._route(event)
        except ZkSessionLost:
            self._resign(_PROCESS_ENDS if self.retry.abandoned else _SESSION_ENDED)
        except RegencyError as error:
            if isinstance(error, EpochBehind):
                self._elector.saw(error.seen)
            self._give_up(str(error))
        except Exception as error:
            # Whatever it was: what is in memory may be half done, so it is thrown away and read again from ZooKeeper.
            logger.exception("handling %s failed", type(event).__name__)
            self._give_up(f"{type(error).__name__} while handling {type(event).__name__}")
        self._refresh_view()

    def _route(self, event: Event) -> None:
        if isinstance(event, ControllerChanged):
            self._on_controller_changed()
        elif isinstance(event, SessionEnded):
            if self._term is not None and self._term.store.fence.generation <= event.generation:
                self._resign(_SESSION_ENDED)
        elif isinstance(event, ShutDown):
            self._resign(_PROCESS_ENDS)
        elif self._term is not None:
            self._handle(self._term, event)

    def _handle(self, term: Term, event: Event) -> None:
        term.decisions.begin(event.cause)
        kind = type(event)
        if kind in routes.NOTIFICATIONS:
            routes.NOTIFICATIONS[kind](term)
            term.hand_over()
        elif isinstance(event, Request):
            answer = routes.REQUESTS[kind](term, event)
            crash_point("controller.request.before_hand_over")
            term.hand_over()
            crash_point("controller.request.before_answer")
            if not event.deferred:
                event.reply.set_result(answer)
            if term.asked_to_end:
                self._step_down(term)
        elif isinstance(event, OfTerm) and event.epoch == term.epoch:
            routes.ANSWERS[kind](term, event)
            term.hand_over()

    # Ruling

    def _on_controller_changed(self) -> None:
        if self._term is not None:
            if self._elector.still_rules(self._term.store.fence):
                self.in_race = True
                return
            self._resign("/controller is no longer this session's, or the epoch has moved")
        early_ms = self._race_at_ms - self._clock.monotonic_ms()
        if early_ms > 0:
            self._block("")  # something changed: it may have been mended, and others may rule by now
            self._queue.put_later(ControllerChanged(), early_ms)
            return
        try:
            outcome = self._elector.elect()
        except ZnodeMalformed as error:
            self._block(f"{error} No controller rules until that znode is set right.")
            raise
        self.in_race = True
        if isinstance(outcome, Fence):
            self._take_over(outcome)
            return
        incumbent = outcome.incumbent
        unreadable = "" if incumbent is None else incumbent.unreadable
        self._block(f"{unreadable} No controller rules until that znode is deleted." if unreadable else "")
        if incumbent is not None and incumbent.broker != self.view.incumbent:
            self.view = msgspec.structs.replace(self.view, incumbent=incumbent.broker)
            if incumbent.broker != NO_LEADER:  # else the elector has logged that it is not known
                logger.info("broker %d rules", incumbent.broker)

    def _block(self, why: str) -> None:
        self.view = msgspec.structs.replace(self.view, blocked=why)

    def _take_over(self, fence: Fence) -> None:
        phases = Phases(self._clock)
        self._fence = fence
        store = ClusterStore(self._session, self.retry, fence, self.counters)
        self._queue.take_marked_topics()
        cluster_id = store.cluster_id()
        assert cluster_id is not None, "the elector creates it"
        self.view = View(epoch=fence.epoch, incumbent=self._settings.broker_id)
        self._term = term = Term(
            self._settings,
            store,
            cluster_id=cluster_id,
            watches=TopicWatches(self._session, self._queue.mark_topic),
            queue=self._queue,
            elector=self._elector,
            channels=self._open_channels(
                Origin(self._settings.broker_id, fence.epoch, self._endpoint),
                lambda told: self._queue.put(event_of(told, fence.epoch)),
            ),
            history=self._history,
            clock=self._clock,
            endpoint=self._endpoint,
            reports=self.reports,
            counters=self.counters,
        )
        term.decisions.begin("failover")
        before = self._elector.predecessor
        after = "" if before is None else f" after broker {before.broker}, which ruled in epoch {before.epoch}"
        why = f"won the race for /controller{after}"
        term.decisions.note("controller", "a candidate", f"broker {self._settings.broker_id}, epoch {fence.epoch}", why)
        take_over(term, phases)
        crash_point("controller.failover.before_hand_over")
        term.hand_over()
        phases.mark("hand-over")
        self.failover = phases.parts
        term.decisions.failed_over(
            f"broker {self._settings.broker_id}, epoch {term.epoch}",
            phases.parts,
            f"{term.context.partition_count} partitions taken over in {phases.total_ms} ms",
        )
        self.counters.failovers += 1
        logger.info(
            "broker %d rules in epoch %d: %d live brokers, %d topics, %d partitions, %d offline, "
            "taken over in %d ms (%s)",
            self._settings.broker_id,
            fence.epoch,
            len(term.context.brokers),
            len(term.context.topics),
            term.context.partition_count,
            term.context.offline_partitions(),
            phases.total_ms,
            phases,
        )

    def _resign(self, why: str) -> None:
        """Stop ruling at once. Nothing is written and nothing more is sent."""
        term, self._term = self._term, None
        self._fence = None
        if term is None:
            return
        self.view = View(epoch=term.epoch)
        term.decisions.begin("resignation")
        term.decisions.note("controller", f"broker {self._settings.broker_id}, epoch {term.epoch}", "a candidate", why)
        crash_point("controller.resignation.before_channels_close")
        term.close()
        crash_point("controller.resignation.after_channels_close")
        self.reports.clear()

    def _give_up(self, why: str) -> None:
        """Stop ruling after a failure, let another rule, and race again after a growing delay."""
        fence = self._fence
        self._resign(why)
        self.in_race = False
        now = self._clock.monotonic_ms()
        if now - self._last_failure_ms > FORGIVEN_AFTER_MS:
            self._failures = 0
        delay = min(FIRST_RETRY_MS << min(self._failures, 16), LAST_RETRY_MS)
        self._failures += 1
        self._last_failure_ms = now
        self._race_at_ms = now + delay
        if why != self._last_failure or self._failures == 1:
            logger.warning("racing again in %d ms, later and later while this lasts: %s", delay, why)
        self._last_failure = why
        self._queue.put_later(ControllerChanged(), delay)
        self._release(fence)

    def _step_down(self, term: Term) -> None:
        """Stop ruling, as it was asked to, and let another win: race again when all others had their time."""
        fence, delay = self._fence, out_of_race_ms(term)
        self._resign("a client asked it to resign")
        self._race_at_ms = self._clock.monotonic_ms() + delay
        self._queue.put_later(ControllerChanged(), delay)
        self._release(fence)

    def _release(self, fence: Fence | None) -> None:
        """Let another rule at once, if /controller is still of the session that won it."""
        if fence is not None:
            crash_point("controller.resignation.before_release")
            try:
                self._elector.release(fence)
            except ZkError as error:
                logger.info("/controller is left to vanish with the session: %s", error)

    def _refresh_view(self) -> None:
        term = self._term
        if term is None:
            return
        context = term.context
        brokers = {broker.id: broker.epoch for broker in context.brokers.values()}
        if brokers != self.view.brokers:
            self.reports.retain(brokers)
        self.view = View(
            ruling=True,
            epoch=term.epoch,
            incumbent=self._settings.broker_id,
            brokers=brokers,
            topics=len(context.topics),
            partitions=context.partition_count,
            offline_partitions=context.offline_partitions(),
        )

    # The session

    def _watch(self, path: str, mode: WatchMode, event: Event) -> None:
        callback: WatchCallback = lambda _: self._queue.put(event)  # noqa: E731
        self._session.watch(path, mode, callback)

    def _on_session_event(self, event: SessionEvent, generation: int) -> None:
        if event is SessionEvent.LOST:
            self._queue.preempt_all(SessionEnded(generation))
        elif event is SessionEvent.CONNECTED:
            self._queue.put(ControllerChanged())
