"""Asks a cluster for what `regency top` shows: one request to the controller that rules, more only to find it again.

Besides, brokers are asked about themselves (`figures`). What cannot be asked is said, and what was known last is shown
as old: nothing here raises because something is away.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import grpc
import msgspec

from regency.cli.asking.controllers import ask_controllers, newest_ruler, nobody_rules
from regency.cli.asking.wire import PartitionFacts, TopicFacts, cluster_wire
from regency.cli.exits import CommandFailed, Exit
from regency.cli.top.figures import MOST_ASKED, FigureAsker
from regency.cli.top.reading import Reader
from regency.cli.top.snapshot import PartitionCounts, Snapshot, TroubleLine
from regency.clients.nodes import Node
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import controller_pb2
from regency.protos import inspection_pb2 as pb
from regency.runtime.grpc.channels import ControllerClient, InspectionClient, RpcFailed, call, open_channel

WORST, DECISIONS = 50, 50
SUMMARY_TIMEOUT_MS = 4_000
"""The controller copies for 0.2 s at most, however busy it is; settings of topics in trouble it reads besides."""
SEARCH_TIMEOUT_MS = 2_000


class Away(Exception):
    """No controller rules, or the one that does cannot be asked; the message says what is known."""


class Asker:
    """Remembers who rules, and what was known last. `look` is called by one thread; `close` by any."""

    def __init__(self, servers: str) -> None:
        self.status = Exit.DONE
        """Of the last look: whether a controller that rules has answered."""
        self._servers = servers
        self._reader = Reader(servers)
        self._ruling: tuple[str, grpc.Channel] | None = None
        self._known: Snapshot | None = None
        self._known_s = 0.0
        self._figures = FigureAsker()
        self._topics: dict[str, TopicFacts] = {}
        self.focus = ""
        """A topic whose partitions are wanted, all of them. Any thread may set it."""

    def close(self) -> None:
        """Close the connections: a call that waits ends."""
        ruling, self._ruling = self._ruling, None
        if ruling is not None:
            ruling[1].close()

    def look(self) -> Snapshot:
        """What is known now."""
        try:
            found = self._found()
        except Away as error:
            self.status = Exit.IN_PROGRESS
            try:
                return self._old(str(error)) if self._known is not None else self._as_brokers_know(str(error))
            except CommandFailed:  # they went away meanwhile
                return self._old(str(error))
        except CommandFailed as error:
            self.status = error.status
            return self._old(str(error))
        self.status = Exit.DONE
        self._known, self._known_s = found, time.monotonic() - (found.age_s or 0.0)
        return found

    def failed(self, why: str) -> Snapshot:
        """What to show when a look failed in an unforeseen way."""
        return self._old(why)

    def _old(self, why: str) -> Snapshot:
        now = _wall_ms()
        if self._known is None:
            return Snapshot(self._servers, now, [why])
        return msgspec.structs.replace(self._known, time_ms=now, notes=[why], age_s=time.monotonic() - self._known_s)

    def _as_brokers_know(self, why: str) -> Snapshot:
        """Without a controller, and before one has told anything: what brokers tell. Raises CommandFailed."""
        with cluster_wire(self._addresses()) as wire:
            nodes, topics = wire.brokers(), wire.topics()
        led = Counter(each.leader_id for topic in topics for each in topic.partitions)
        held = Counter(replica for topic in topics for each in topic.partitions for replica in each.replica_nodes)
        told = pb.SummariseResponse(broker_id=-1)
        for broker in sorted({*nodes, *held}):
            node = nodes.get(BrokerId(broker))
            host, port, epoch = ("", 0, -1) if node is None else (node.host, node.port, 0)
            told.brokers.add(
                broker_id=broker, broker_epoch=epoch, host=host, port=port, leads=led[broker], report_age_ms=-1
            )
        lines = [_line(topic.name, each) for topic in topics for each in topic.partitions]
        ill = sorted((each for each in lines if each.kind != "well"), key=lambda each: each.leader is not None)
        offline = sum(each.leader is None for each in ill)
        figures = self._figures.look(list(nodes.values()), len(lines), "")
        found = self._reader.read(told, figures, now_s=time.monotonic(), time_ms=_wall_ms())
        return msgspec.structs.replace(
            found,
            notes=[why],
            controller=None,
            brokers=[
                each
                if each.address is None
                else msgspec.structs.replace(each, leads=led[each.broker], follows=held[each.broker] - led[each.broker])
                for each in found.brokers
            ],
            partitions=PartitionCounts(len(topics), len(lines), offline, len(lines) - len(ill), len(ill)),
            worst=self._placed(list(nodes.values()), ill[:WORST]),
        )

    def _found(self) -> Snapshot:
        if self._ruling is not None:
            try:
                return self._ask_ruling()
            except (RpcFailed, Away):
                self.close()
        self._ruling = self._search()
        try:
            return self._ask_ruling()
        except RpcFailed as error:
            self.close()
            raise Away(str(error)) from error

    def _ask_ruling(self) -> Snapshot:
        """Raises RpcFailed; Away where it rules no more."""
        assert self._ruling is not None, "it was searched for"
        address, channel = self._ruling
        request = pb.SummariseRequest(worst=WORST, decisions=DECISIONS)
        target = f"the controller at {address}"
        try:
            answer = call(InspectionClient(channel).summarise, request, timeout_ms=SUMMARY_TIMEOUT_MS, target=target)
        except RpcFailed as error:
            if not _is_too_old(error):
                raise
            return self._described(address, channel)
        if answer.error_code != ErrorCode.NONE:
            raise Away(answer.message or f"The controller of broker {answer.broker_id} rules no more.")
        topic = self.focus
        nodes = [
            Node(BrokerId(each.broker_id), each.host, each.port)
            for each in answer.brokers
            if each.broker_epoch >= 0 and each.port > 0
        ]
        figures = self._figures.look(nodes, answer.partitions, topic)
        now_s = time.monotonic()
        found = self._reader.read(answer, figures, now_s=now_s, time_ms=_wall_ms())
        found = msgspec.structs.replace(found, groups=self._reader.groups(self._figures.groups(nodes)))
        try:
            if not topic:
                return msgspec.structs.replace(found, worst=self._placed(nodes, found.worst))
            found = msgspec.structs.replace(found, focus=topic, focused=self._placed(nodes, self._partitions(topic)))
        except CommandFailed as error:
            where = f"Topic {topic}: " if topic else ""
            return msgspec.structs.replace(found, notes=[*found.notes, f"{where}{error}"])
        if len(found.focused) > MOST_ASKED:
            words = f"How far replicas are is asked of the first {MOST_ASKED} partitions of {topic} only."
            found = msgspec.structs.replace(found, notes=[*found.notes, words])
        return self._reader.focus(found, figures, now_s=now_s)

    def _placed(self, nodes: Sequence[Node], lines: list[TroubleLine]) -> list[TroubleLine]:
        """With the lags of replicas, as each tells: of so many lines as may be on the screen. Raises CommandFailed."""
        asked = [each for each in lines if each.leader is not None][:MOST_ASKED]
        if new := {each.topic for each in asked} - self._topics.keys():
            with cluster_wire(self._addresses()) as wire:
                self._topics |= {each.name: each for each in wire.topics(sorted(new))}
        wanted = {TopicPartition(each.topic, each.partition): each.replicas for each in asked}
        ends = self._figures.places(nodes, self._topics.values(), wanted)
        if any((BrokerId(each.leader or 0), TopicPartition(each.topic, each.partition)) not in ends for each in asked):
            self._topics = {}  # a topic of that name may be another by now
        return self._reader.place(lines, ends, now_s=time.monotonic())

    def _partitions(self, topic: str) -> list[TroubleLine]:
        """All partitions of a topic, as a broker knows them. Raises CommandFailed."""
        with cluster_wire(self._addresses()) as wire:
            [found] = wire.topics([topic])
        if found.error_code != ErrorCode.NONE:
            raise CommandFailed(ErrorCode(found.error_code).name)
        self._topics[topic] = found
        return [_line(topic, each) for each in found.partitions]

    def _described(self, address: str, channel: grpc.Channel) -> Snapshot:
        request = controller_pb2.DescribeControllerRequest()
        told = call(
            ControllerClient(channel).describe,
            request,
            timeout_ms=SEARCH_TIMEOUT_MS,
            target=f"the controller at {address}",
        )
        if not told.active:
            raise Away(f"The controller of broker {told.broker_id} rules no more.")
        return self._reader.read_described(told, time_ms=_wall_ms())

    def _search(self) -> tuple[str, grpc.Channel]:
        """Find who rules by asking every controller process at the same time. Raises Away, CommandFailed."""
        with cluster_wire(self._addresses()) as wire:
            nodes = wire.controllers()
        channels = {broker: open_channel(node.address) for broker, node in nodes.items()}
        facts = ask_controllers(nodes, channels, timeout_ms=SEARCH_TIMEOUT_MS)
        ruler = newest_ruler(facts)
        best = None if ruler is None else BrokerId(ruler.broker)
        for broker, channel in channels.items():
            if broker != best:
                channel.close()
        if best is None:
            raise Away(nobody_rules(facts))
        return nodes[best].address, channels[best]

    def _addresses(self) -> str:
        """Those that were given, and brokers seen since: the first may be gone by now."""
        seen = [] if self._known is None else [each.address for each in self._known.brokers if each.address]
        return ",".join(dict.fromkeys([*self._servers.split(","), *seen]))


def _line(topic: str, each: PartitionFacts) -> TroubleLine:
    """A partition as a broker knows it."""
    return TroubleLine(
        topic,
        each.partition_index,
        "offline" if each.leader is None else "under_replicated" if each.out_of_sync else "well",
        each.leader,
        list(each.replica_nodes),
        list(each.isr_nodes),
        reassigning=False,
    )


def _is_too_old(error: RpcFailed) -> bool:
    """Whether the controller is of a version that has no summary."""
    return "unimplemented" in str(error)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
