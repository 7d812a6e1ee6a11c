"""Summarise: the cluster at a glance. It is made of copies (topic_copies.py), without the controller's thread.

After a change of controllers all topics are copied: that is spread over as many questions as it takes, and each answer
says how many are still to come.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from regency.controller.channel.channel_manager import BrokerBacklog
from regency.controller.controller import Controller
from regency.controller.events import EventLoop, EventQueue
from regency.controller.state.topic_copies import Copies, Troubled, TroubleKind, worst_of
from regency.controller.term import Term
from regency.history.records import encode_decisions
from regency.model import znodes
from regency.model.clock import Clock
from regency.model.errors import ZnodeMalformed
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.dynamic import broker_log_config
from regency.model.settings.log_config import LogConfig, applicable_log_config
from regency.model.znodes import paths
from regency.protos import inspection_pb2 as pb
from regency.runtime.zookeeper.session import ZkError, ZkSession, Znode

MOST: Final = 100
"""Partitions and decisions that are named in one answer."""
WORK_MS: Final = 200
"""After so long the rest is left to the next question."""
SETTINGS_LAST_MS: Final = 30_000
"""So long what a topic's settings said is taken to hold."""


class Summariser:
    """Summarises for one controller process. `defaults` are the topic settings of its file. Any thread."""

    def __init__(
        self,
        controller: Controller,
        queue: EventQueue,
        loop: EventLoop,
        session: ZkSession,
        *,
        broker: BrokerId,
        defaults: LogConfig,
        clock: Clock,
    ) -> None:
        self._controller = controller
        self._queue = queue
        self._loop = loop
        self._session = session
        self._broker = broker
        self._defaults = defaults
        self._clock = clock
        self._asking = threading.Lock()
        self._min_isr: dict[str, tuple[int, int]] = {}
        """Of topics in which something is wrong: min.insync.replicas, and when it was read."""

    def summarise(self, request: pb.SummariseRequest) -> pb.SummariseResponse:
        """What is known now, also while the controller's thread is busy."""
        with self._asking:
            term = self._controller.term
            if term is None:
                return self._not_ruling()
            until = self._clock.monotonic_ms() + WORK_MS
            copies = term.copies.take(lambda: self._clock.monotonic_ms() >= until)
            self._read_settings([copy.name for copy in copies.topics if copy.health is not None])
            return self._answer(request, term, copies)

    def _not_ruling(self) -> pb.SummariseResponse:
        view = self._controller.view
        return pb.SummariseResponse(
            error_code=ErrorCode.NOT_CONTROLLER,
            message=view.blocked,
            broker_id=self._broker,
            incumbent=view.incumbent,
            controller_epoch=view.epoch,
            in_contact=self._controller.in_contact,
        )

    def _read_settings(self, topics: Sequence[str]) -> None:
        """Have min.insync.replicas of these topics, and of no others. What cannot be read is as it was."""
        now = self._clock.monotonic_ms()
        self._min_isr = {name: self._min_isr[name] for name in topics if name in self._min_isr}
        wanted = [
            name for name in topics if name not in self._min_isr or now - self._min_isr[name][1] > SETTINGS_LAST_MS
        ]
        if not wanted or not self._controller.in_contact:
            return
        entities = [f"brokers/{paths.EVERY_BROKER}", f"brokers/{self._broker}", *(f"topics/{name}" for name in wanted)]
        try:
            everybody, own, *configs = self._session.read_many([paths.config_of(entity) for entity in entities])
        except ZkError:
            return
        base, _ = broker_log_config(self._defaults, _config(everybody), _config(own))
        for name, znode in zip(wanted, configs, strict=True):
            config, _ = applicable_log_config(base, _config(znode))
            self._min_isr[name] = config.min_insync_replicas, now

    def _answer(self, request: pb.SummariseRequest, term: Term, copies: Copies) -> pb.SummariseResponse:
        view = self._controller.view
        troubled = {copy.name: copy.health for copy in copies.topics if copy.health is not None}
        unread = self._defaults.min_insync_replicas, 0
        min_isrs = {name: self._min_isr.get(name, unread)[0] for name in troubled}
        answer = pb.SummariseResponse(
            broker_id=self._broker,
            incumbent=self._broker,
            controller_epoch=term.epoch,
            state=self._loop.state.label,
            queued=len(self._queue),
            in_contact=self._controller.in_contact,
            ruling_since_ms=term.began_ms,
            failover_ms=sum(spent_ms for _, spent_ms in self._controller.failover),
            topics=copies.topic_count,
            partitions=view.partitions if copies.uncounted else copies.partitions,
            uncounted_topics=copies.uncounted,
            offline=view.offline_partitions if copies.uncounted else sum(each.offline for each in troubled.values()),
            under_replicated=sum(each.under_replicated for each in troubled.values()),
            under_min_isr=sum(each.under_min_isr(min_isrs[name]) for name, each in troubled.items()),
            reassigning=copies.reassigning,
            deleting=copies.deleting,
        )
        answer.brokers.extend(self._brokers(copies, term.channels.backlogs()))
        worst = worst_of(troubled, min_isrs, min(request.worst, MOST))
        answer.worst.extend(_trouble(kind, each) for kind, each in worst)
        events = term.decisions.events(min(request.decisions, MOST))
        answer.events.extend(pb.ToldEvent(time_ms=at_ms, number=number, told=told) for number, at_ms, told in events)
        answer.decisions.extend(encode_decisions(term.decisions.last(min(request.decisions, MOST))).splitlines())
        return answer

    def _brokers(self, copies: Copies, told: Sequence[BrokerBacklog]) -> Iterator[pb.SummarisedBroker]:
        backlogs = {each.broker: each for each in told}
        now = self._clock.monotonic_ms()
        for _, broker in sorted(copies.brokers.items()):
            tally = self._controller.reports.tally(broker.id, broker.epoch)
            backlog = backlogs.get(broker.id)
            endpoint = broker.endpoints[0] if broker.endpoints else None
            yield pb.SummarisedBroker(
                broker_id=broker.id,
                broker_epoch=broker.epoch,
                shutting_down=broker.id in copies.shutting_down,
                host="" if endpoint is None else endpoint.host,
                port=0 if endpoint is None else endpoint.port,
                report_age_ms=-1 if tally is None else now - tally.at_ms,
                leads=0 if tally is None else tally.leads,
                follows=0 if tally is None else tally.follows,
                offline_replicas=0 if tally is None else tally.offline,
                appended=0 if tally is None else tally.appended,
                unacknowledged=0 if backlog is None else backlog.unacknowledged,
                oldest_attempt_ms=0 if backlog is None else backlog.oldest_attempt_ms,
                last_failure="" if backlog is None else backlog.last_failure,
            )
        for absent in sorted(copies.absent):
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
