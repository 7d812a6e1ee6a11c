"""Examine: does ZooKeeper hold what the ruling controller knows, and do the agents host what it wants?

Runs on a thread of its own, on copies that the controller's thread makes a few partitions at a time. What differs is
looked at a second time after a while: only what still does is reported, for news is always on its way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from regency.controller.controller import Controller
from regency.controller.copies import ClusterCopy, CopyCluster, CopyTopics, context_of
from regency.controller.doctor.rules import (
    OF_ALL_TOPICS,
    ZOOKEEPER,
    Finding,
    Stored,
    Watermark,
    examine_absent,
    examine_deletions,
    examine_health,
    examine_reports,
    examine_strangers,
    examine_topic,
    examine_watermarks,
    watermarks,
)
from regency.controller.events import NotController
from regency.controller.request_gate import RequestGate
from regency.controller.state.reports import BrokerReports, served
from regency.controller.store.cluster_store import decode_state
from regency.controller.store.topics import decode_topic
from regency.model import znodes
from regency.model.clock import Clock
from regency.model.errors import ZnodeMalformed
from regency.model.facts import LeaderIsrAndControllerEpoch
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import inspection_pb2 as pb
from regency.runtime.zookeeper.session import ZkError, ZkSession, Znode

T = TypeVar("T")

PARTITIONS_AT_ONCE: Final = 2_000
"""Copied in one event of the controller: well below a millisecond."""
MOST_FINDINGS: Final = 1_000
DEFAULT_CONFIRM_MS: Final = 4_000
"""Longer than agents take to report and leaders to announce ISR changes."""
SILENT_MS: Final = 25_000
"""An agent whose last report is older is silent: one gives a sign of life every 10 s."""
LIFE_MS: Final = 11_000
"""An agent whose last report is older is late: it does not help to wait for its next one."""
SLOW_MS: Final = 10_000
"""What is not acknowledged for so long is worth telling."""
FULL_WAIT_MS: Final = 15_000
LOOK_EVERY_MS: Final = 200


class Examiner:
    """Examines for one controller process. Any thread, one at a time."""

    def __init__(
        self, controller: Controller, gate: RequestGate, session: ZkSession, broker: BrokerId, clock: Clock
    ) -> None:
        self._controller = controller
        self._gate = gate
        self._session = session
        self._broker = broker
        self._clock = clock
        self._never = threading.Event()
        """For waiting."""

    def examine(self, request: pb.ExamineRequest) -> pb.ExamineResponse:
        """Look twice, and tell what was found both times."""
        try:
            return self._examine(request)
        except NotController:
            return self._refuse(*self._gate.not_ruling())
        except TimeoutError:
            return self._refuse(ErrorCode.REQUEST_TIMED_OUT, self._gate.too_busy())
        except ZkError as error:
            return self._refuse(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper cannot be read: {error}")

    def _refuse(self, code: ErrorCode, message: str) -> pb.ExamineResponse:
        return pb.ExamineResponse(error_code=code, message=message, broker_id=self._broker)

    def _examine(self, request: pb.ExamineRequest) -> pb.ExamineResponse:
        first = self._gate.ask(CopyCluster())
        if request.full:
            self._await_full(first)
        suspects, high = self._look(first, first.topics, {})
        if suspects or high:
            self._never.wait((request.confirm_ms or DEFAULT_CONFIRM_MS) / 1000)
        self._await_word(first, high)
        cluster = self._gate.ask(CopyCluster())
        topics = {_topic_of(finding.subject) for finding in suspects} | {partition.topic for partition in high}
        if any(finding.kind in OF_ALL_TOPICS for finding in suspects):
            topics.update(cluster.topics)
        again = {name: count for name, count in cluster.topics.items() if name in topics}
        seen = {finding.key for finding in suspects}
        found, _ = self._look(cluster, again, high)
        confirmed = sorted(each for each in found if each.key in seen or each.kind == "behind_watermark")
        return self._answer(cluster, confirmed)

    def _answer(self, cluster: ClusterCopy, findings: Sequence[Finding]) -> pb.ExamineResponse:
        return pb.ExamineResponse(
            broker_id=self._broker,
            controller_epoch=cluster.epoch,
            topics=len(cluster.topics),
            partitions=sum(cluster.topics.values()),
            offline_partitions=cluster.offline_partitions,
            brokers=self._brokers(cluster),
            findings=(
                pb.Finding(subject=each.subject, kind=each.kind, where=each.where, what=each.what, advice=each.advice)
                for each in findings[:MOST_FINDINGS]
            ),
            more_findings=max(0, len(findings) - MOST_FINDINGS),
            repairs=dict(self._controller.counters.repairs),
        )

    def _brokers(self, cluster: ClusterCopy) -> Iterator[pb.ExaminedBroker]:
        backlogs = {each.broker: each for each in cluster.backlogs}
        for broker, registered in sorted(cluster.brokers.items()):
            reports = self._controller.reports.copy(broker, registered.epoch)
            backlog = backlogs.get(broker)
            yield pb.ExaminedBroker(
                broker_id=broker,
                broker_epoch=registered.epoch,
                report_age_ms=-1 if reports is None else self._clock.monotonic_ms() - reports.last.at_ms,
                hosted=0 if reports is None else served(reports.replicas),
                unacknowledged=0 if backlog is None else backlog.unacknowledged,
                oldest_attempt_ms=0 if backlog is None else backlog.oldest_attempt_ms,
                last_failure="" if backlog is None else backlog.last_failure,
            )

    def _await_full(self, cluster: ClusterCopy) -> None:
        """Have every agent name all it hosts. One that does not in time is found to be silent."""
        for broker in cluster.brokers:
            self._controller.reports.ask_for_all(broker)
        for _ in range(FULL_WAIT_MS // LOOK_EVERY_MS):
            live = cluster.brokers.values()
            if all(self._controller.reports.last(each.id, each.epoch) is not None for each in live):
                return
            self._never.wait(LOOK_EVERY_MS / 1000)

    def _await_word(self, cluster: ClusterCopy, high: Mapping[TopicPartition, Watermark]) -> None:
        """Let every member whose log seems to be too short report once more than the leader had, if it still does."""
        awaited: dict[BrokerId, int] = {}
        for told in high.values():
            awaited.update((member, max(told.told_ms, awaited.get(member, 0))) for member in told.members)
        while any(self._may_tell(cluster, member, told_ms) for member, told_ms in awaited.items()):
            self._never.wait(LOOK_EVERY_MS / 1000)

    def _may_tell(self, cluster: ClusterCopy, member: BrokerId, told_ms: int) -> bool:
        last = self._controller.reports.last(member, cluster.brokers[member].epoch)
        return last is not None and last.at_ms <= told_ms and self._clock.monotonic_ms() - last.at_ms < LIFE_MS

    # One look

    def _look(
        self, cluster: ClusterCopy, topics: Mapping[str, int], earlier: Mapping[TopicPartition, Watermark]
    ) -> tuple[list[Finding], dict[TopicPartition, Watermark]]:
        """What differs now in these topics and in what concerns all; and high watermarks to look at again."""
        reports = {
            broker: told
            for broker, registered in sorted(cluster.brokers.items())
            if broker not in cluster.shutting_down
            and (told := self._controller.reports.copy(broker, registered.epoch)) is not None
        }
        now_ms = self._clock.monotonic_ms()
        talking = {broker: each for broker, each in reports.items() if now_ms - each.last.at_ms < SILENT_MS}
        findings = [*self._of_cluster(cluster), *self._of_agents(cluster, talking)]
        findings.extend(examine_strangers(cluster.topics, talking))
        findings.extend(examine_deletions(cluster.waiting))
        high: dict[TopicPartition, Watermark] = {}
        dead: dict[BrokerId, list[TopicPartition]] = {}
        owing: dict[BrokerId, list[TopicPartition]] = {}
        for names in _pieces(topics):
            copied = self._gate.ask(CopyTopics(names))
            context = context_of(cluster, copied)
            stored = self._read(copied)
            for name, entry in copied.items():
                findings.extend(examine_topic(context, entry, stored[name]))
            findings.extend(examine_health(context))
            findings.extend(examine_reports(context, talking))
            behind = watermarks(context, talking)
            findings.extend(examine_watermarks(behind, talking, earlier))
            high.update(behind)
            for partition in (each for each in context.partitions() if each.topic not in cluster.to_delete):
                assignment = context.assignment(partition)
                for replicas, of_whom in ((assignment.replicas, dead), (assignment.deleting, owing)):
                    for absent in (each for each in replicas if each not in cluster.brokers):
                        of_whom.setdefault(absent, []).append(partition)
        findings.extend(examine_absent(dead, owing))
        return findings, high

    def _of_cluster(self, cluster: ClusterCopy) -> Iterator[Finding]:
        """Who is registered, who rules, which topics there are."""
        ids = self._session.children(paths.BROKER_IDS)
        names = () if ids is None else ids.names
        registered = self._session.read_many([f"{paths.BROKER_IDS}/{name}" for name in names])
        epochs: dict[BrokerId, int] = {}
        for znode in (each for each in registered if each is not None):
            number = paths.parse_broker(znode.path)
            if number is None:
                what = f"{znode.path}: a broker is registered under its number, and this is none"
                yield Finding(f"broker {znode.path.rpartition('/')[2]}", "malformed", "zookeeper", what)
            else:
                epochs[number] = znode.stat.czxid
        for broker in sorted(epochs.keys() | cluster.brokers.keys()):
            known, there = cluster.brokers.get(BrokerId(broker)), epochs.get(broker)
            if known is None:
                what = f"it is registered under epoch {there}, and the controller does not know it"
                yield Finding(f"broker {broker}", "broker_unknown", ZOOKEEPER, what)
            elif there != known.epoch:
                what = f"registered under epoch {there}; the controller knows {known.epoch}"
                yield Finding(f"broker {broker}", "broker_stale", ZOOKEEPER, what)
        ruling, epoch = self._session.read_many([paths.CONTROLLER, paths.CONTROLLER_EPOCH])
        yield from _of_rule(self._broker, cluster, ruling, epoch)
        listing = self._session.children(paths.TOPICS)
        for name in sorted(() if listing is None else listing.names):
            if name not in cluster.topics:
                what = "it has a znode, and the controller does not know it"
                yield Finding(f"topic {name}", "topic_unknown", ZOOKEEPER, what)

    def _of_agents(self, cluster: ClusterCopy, talking: Mapping[BrokerId, BrokerReports]) -> Iterator[Finding]:
        for broker in sorted(cluster.brokers.keys() - talking.keys() - cluster.shutting_down):
            what = f"it lives, and has not said for {SILENT_MS // 1000} s what it hosts"
            yield Finding(f"broker {broker}", "silent", "its agent", what)
        for backlog in cluster.backlogs:
            if backlog.oldest_attempt_ms > SLOW_MS:
                why = f": {backlog.last_failure}" if backlog.last_failure else ""
                what = (
                    f"{backlog.unacknowledged} desired states are not acknowledged, the oldest request for "
                    f"{backlog.oldest_attempt_ms / 1000:.1f} s{why}"
                )
                yield Finding(f"broker {backlog.broker}", "not_acknowledged", "its agent", what)

    def _read(self, topics: Mapping[str, object]) -> dict[str, Stored]:
        """What ZooKeeper holds of these topics."""
        found = self._session.read_many([paths.topic(name) for name in topics])
        by_name = dict(zip(topics, found, strict=True))
        assignments = {name: _decoded(partial(decode_topic, name), znode) for name, znode in by_name.items()}
        partitions = [
            TopicPartition(name, number)
            for name, topic in assignments.items()
            if topic is not None and not isinstance(topic, str)
            for number in sorted(topic.partitions)
        ]
        states: dict[str, dict[int, LeaderIsrAndControllerEpoch | str | None]] = {name: {} for name in topics}
        read = self._session.read_many([paths.partition_state(partition) for partition in partitions])
        for partition, znode in zip(partitions, read, strict=True):
            states[partition.topic][partition.partition] = _decoded(decode_state, znode)
        return {name: Stored(assignments[name], states[name]) for name in topics}


def _of_rule(broker: BrokerId, cluster: ClusterCopy, ruling: Znode | None, epoch: Znode | None) -> Iterator[Finding]:
    try:
        named = None if ruling is None else znodes.decode_controller(ruling.path, ruling.data)
        stored = None if epoch is None else znodes.decode_controller_epoch(epoch.path, epoch.data)
    except ZnodeMalformed as error:
        yield Finding("controller", "malformed", "zookeeper", str(error))
        return
    if (named, stored) != (broker, cluster.epoch):
        what = f"/controller names {named} and the epoch is {stored}; {broker} rules in epoch {cluster.epoch}"
        yield Finding("controller", "controller_differs", ZOOKEEPER, what)


def _decoded(decode: Callable[[Znode], T], znode: Znode | None) -> T | str | None:
    try:
        return None if znode is None else decode(znode)
    except ZnodeMalformed as error:
        return str(error)


def _pieces(topics: Mapping[str, int]) -> Iterator[list[str]]:
    """Topics in pieces of about so many partitions."""
    piece: list[str] = []
    size = 0
    for name, count in topics.items():
        if piece and size + count > PARTITIONS_AT_ONCE:
            yield piece
            piece, size = [], 0
        piece.append(name)
        size += count
    if piece:
        yield piece


def _topic_of(subject: str) -> str:
    """The topic a finding is about, or what no topic is called."""
    if subject.startswith("topic "):
        return subject.removeprefix("topic ")
    return subject.rpartition("-")[0]
