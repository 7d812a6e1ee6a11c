"""Summarise: the cluster at a glance. The counts are kept here, outside the controller's thread, and brought up to date
by the topics that have changed since the last question; what a topic costs its thread is a copy of some lists.

The first question in a controller epoch makes all topics be looked at: that is spread over as many questions as it
takes, and each answer says how many are still to come.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Final

from regency.controller.controller import Controller
from regency.controller.desk import Desk
from regency.controller.events import NotController
from regency.controller.summary_events import Glance, TakeGlance
from regency.controller.summary_rules import TopicHealth, Troubled, TroubleKind, health_of, worst_of
from regency.history.records import encode_decisions
from regency.model import znode_paths as paths
from regency.model import znodes
from regency.model.clock import Clock
from regency.model.errors import ZnodeMalformed
from regency.model.ids import BrokerId, ControllerEpoch
from regency.model.kafka_errors import ErrorCode
from regency.model.log_config import LogConfig, applicable_log_config
from regency.model.settings_dynamic import broker_log_config
from regency.protos import inspection_pb2 as pb
from regency.runtime.zk_session import ZkError, ZkSession, Znode

MOST: Final = 100
"""Partitions and decisions that are named in one answer."""
WORK_MS: Final = 200
"""After so long the rest is left to the next question."""
WAIT_MS: Final = 1_000
"""So long the controller's thread may be busy with something else; then the answer is what was known before."""
SETTINGS_LAST_MS: Final = 30_000
"""So long what a topic's settings said is taken to hold."""


class Summariser:
    """Summarises for one controller process. `defaults` are the topic settings of its file. Any thread."""

    def __init__(
        self,
        controller: Controller,
        desk: Desk,
        session: ZkSession,
        *,
        broker: BrokerId,
        defaults: LogConfig,
        clock: Clock,
    ) -> None:
        self._controller = controller
        self._desk = desk
        self._session = session
        self._broker = broker
        self._defaults = defaults
        self._clock = clock
        self._asking = threading.Lock()
        self._pending: TakeGlance | None = None
        """Queued, and not answered in time: what it took from the controller must not be lost."""
        self._epoch: ControllerEpoch | None = None
        self._glance: Glance | None = None
        self._glance_ms = 0
        self._health: dict[str, TopicHealth] = {}
        """Of the topics in which something is wrong."""
        self._min_isr: dict[str, tuple[int, int]] = {}
        """Of these topics: min.insync.replicas, and when it was read."""

    def summarise(self, request: pb.SummariseRequest) -> pb.SummariseResponse:
        """What is known now. Where the controller's thread is busy, what was known before, and why."""
        with self._asking:
            late = ""
            try:
                self._look(min(request.decisions, MOST))
            except NotController:
                return self._not_ruling()
            except TimeoutError:
                late = self._desk.too_busy()
            self._read_settings()
            return self._answer(request, late)

    def _not_ruling(self) -> pb.SummariseResponse:
        self._forget()
        view = self._controller.view
        return pb.SummariseResponse(
            error_code=ErrorCode.NOT_CONTROLLER,
            message=view.blocked,
            broker_id=self._broker,
            incumbent=view.incumbent,
            controller_epoch=view.epoch,
            in_contact=self._controller.in_contact,
        )

    # Looking

    def _look(self, decisions: int) -> None:
        """Take in what has changed, for `WORK_MS` at most. Raises NotController, TimeoutError."""
        until = self._clock.monotonic_ms() + WORK_MS
        while True:
            anew, glance = self._ask(decisions)
            if glance.epoch != self._epoch and not anew:  # what was counted was of another term
                self._forget()
                continue
            self._epoch = glance.epoch
            self._glance, self._glance_ms = glance, self._clock.monotonic_ms()
            for name, entry in glance.changed.items():
                health = None if entry is None else health_of(entry)
                if health is None:
                    self._health.pop(name, None)
                    self._min_isr.pop(name, None)
                else:
                    self._health[name] = health
            if not glance.uncounted or self._glance_ms >= until:
                return

    def _ask(self, decisions: int) -> tuple[bool, Glance]:
        """What there is to see, and whether every topic was to be looked at anew."""
        if self._pending is None:
            request = TakeGlance(decisions, anew=self._glance is None)
            self._desk.put(request)
            self._pending = request
        request = self._pending
        try:
            glance = self._desk.wait(request, WAIT_MS)
        except NotController:
            self._pending = None
            raise
        self._pending = None
        return request.anew, glance

    def _forget(self) -> None:
        self._epoch, self._glance = None, None
        self._health.clear()
        self._min_isr.clear()

    def _read_settings(self) -> None:
        """Have min.insync.replicas of every topic in which something is wrong. What cannot be read is as it was."""
        now = self._clock.monotonic_ms()
        wanted = [
            name
            for name in self._health
            if name not in self._min_isr or now - self._min_isr[name][1] > SETTINGS_LAST_MS
        ]
        if not wanted or not self._controller.in_contact:
            return
        entities = [f"brokers/{paths.EVERY_BROKER}", f"brokers/{self._broker}", *(f"topics/{name}" for name in wanted)]
        try:
            everybody, own, *topics = self._session.read_many([paths.config_of(entity) for entity in entities])
        except ZkError:
            return
        base, _ = broker_log_config(self._defaults, _config(everybody), _config(own))
        for name, znode in zip(wanted, topics, strict=True):
            config, _ = applicable_log_config(base, _config(znode))
            self._min_isr[name] = config.min_insync_replicas, now

    # Telling

    def _answer(self, request: pb.SummariseRequest, message: str) -> pb.SummariseResponse:
        view, glance = self._controller.view, self._glance
        answer = pb.SummariseResponse(
            message=message,
            broker_id=self._broker,
            incumbent=view.incumbent,
            controller_epoch=view.epoch,
            state=self._desk.busy_with,
            queued=self._desk.queued,
            in_contact=self._controller.in_contact,
            failover_ms=sum(spent_ms for _, spent_ms in self._controller.failover),
            topics=view.topics,
            partitions=view.partitions,
            offline=view.offline_partitions,
            uncounted_topics=view.topics,
        )
        if glance is None:
            return answer
        min_isrs = {name: self._min_isr.get(name, (self._defaults.min_insync_replicas, 0))[0] for name in self._health}
        counted = [(each, min_isrs[name]) for name, each in self._health.items() if name not in glance.deleting]
        answer.controller_epoch = glance.epoch
        answer.ruling_since_ms = glance.began_ms
        answer.topics, answer.partitions = glance.topics, glance.partitions
        answer.uncounted_topics = glance.uncounted
        answer.under_replicated = sum(each.under_replicated for each, _ in counted)
        answer.under_min_isr = sum(each.under_min_isr(min_isr) for each, min_isr in counted)
        answer.reassigning, answer.deleting = glance.reassigning, len(glance.deleting)
        answer.age_ms = self._clock.monotonic_ms() - self._glance_ms
        answer.brokers.extend(self._brokers(glance))
        worst = worst_of(self._health, min_isrs, min(request.worst, MOST), but=glance.deleting)
        answer.worst.extend(_trouble(kind, each) for kind, each in worst)
        answer.decisions.extend(encode_decisions(glance.decisions).splitlines())
        return answer

    def _brokers(self, glance: Glance) -> Iterator[pb.SummarisedBroker]:
        standings = {each.broker: each for each in glance.standings}
        now = self._clock.monotonic_ms()
        for broker in glance.brokers:
            tally = self._controller.reports.tally(broker.id, broker.epoch)
            standing = standings.get(broker.id)
            endpoint = broker.endpoints[0] if broker.endpoints else None
            yield pb.SummarisedBroker(
                broker_id=broker.id,
                broker_epoch=broker.epoch,
                shutting_down=broker.id in glance.shutting_down,
                host="" if endpoint is None else endpoint.host,
                port=0 if endpoint is None else endpoint.port,
                report_age_ms=-1 if tally is None else now - tally.at_ms,
                leads=0 if tally is None else tally.leads,
                follows=0 if tally is None else tally.follows,
                offline_replicas=0 if tally is None else tally.offline,
                appended=0 if tally is None else tally.appended,
                unacknowledged=0 if standing is None else standing.unacknowledged,
                oldest_attempt_ms=0 if standing is None else standing.oldest_attempt_ms,
                last_failure="" if standing is None else standing.last_failure,
            )
        for absent in glance.absent:
            yield pb.SummarisedBroker(broker_id=absent, broker_epoch=-1, report_age_ms=-1)


def _trouble(kind: TroubleKind, each: Troubled) -> pb.PartitionTrouble:
    return pb.PartitionTrouble(
        topic=each.partition.topic,
        partition=each.partition.partition,
        kind=kind.value,
        leader=each.leader,
        replicas=each.replicas,
        isr=each.isr,
        reassigning=each.reassigning,
    )


def _config(znode: Znode | None) -> Mapping[str, str]:
    """Settings that stand there; none where they cannot be read."""
    if znode is None:
        return {}
    try:
        return znodes.decode_config(znode.path, znode.data)
    except ZnodeMalformed:
        return {}
