"""Asks a cluster for what `regency top` shows: one request to the controller that rules, more only to find it again.

Besides, every ten seconds each broker is asked how full its volumes are. What cannot be asked is said, and what was
known last is shown as old: nothing here raises because something is away.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import grpc
import msgspec

from regency.cli.asking.controllers import ask_controllers, newest_ruler, nobody_rules
from regency.cli.asking.wire import cluster_wire
from regency.cli.exits import CommandFailed, Exit
from regency.cli.top.reading import Reader, Snapshot, TroubleLine
from regency.kafka.peer import PeerConnection, PeerUnavailable
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.protos import controller_pb2
from regency.protos import inspection_pb2 as pb
from regency.runtime.grpc.channels import ControllerClient, InspectionClient, RpcFailed, call, open_channel

WORST, DECISIONS = 50, 50
SUMMARY_TIMEOUT_MS = 4_000
"""The controller copies for 0.2 s at most, however busy it is; settings of topics in trouble it reads besides."""
SEARCH_TIMEOUT_MS = 2_000
DISKS_EVERY_S = 10.0
DISK_TIMEOUT_MS = 1_000
MOST_DISKS = 50
"""In larger clusters volumes are not asked for: it would be one request to each broker."""
DISK_VERSION = 4


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
        self._disks: dict[int, float] = {}
        self._disks_s = -DISKS_EVERY_S
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
        self._look_at_disks(answer.brokers)
        found = self._reader.read(answer, self._disks, now_s=time.monotonic(), time_ms=_wall_ms())
        topic = self.focus
        if not topic:
            return found
        try:
            return msgspec.structs.replace(found, focus=topic, focused=self._partitions(topic))
        except CommandFailed as error:
            return msgspec.structs.replace(found, notes=[*found.notes, f"Topic {topic}: {error}"])

    def _partitions(self, topic: str) -> list[TroubleLine]:
        """All partitions of a topic, as a broker knows them. Raises CommandFailed."""
        with cluster_wire(self._addresses()) as wire:
            [found] = wire.topics([topic])
        if found.error_code != ErrorCode.NONE:
            raise CommandFailed(ErrorCode(found.error_code).name)
        return [
            TroubleLine(
                topic,
                each.partition_index,
                "offline" if each.leader_id < 0 else "under_replicated" if each.out_of_sync else "well",
                None if each.leader_id < 0 else each.leader_id,
                list(each.replica_nodes),
                list(each.isr_nodes),
                reassigning=False,
            )
            for each in found.partitions
        ]

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

    def _look_at_disks(self, brokers: Iterable[pb.SummarisedBroker]) -> None:
        now = time.monotonic()
        live = [each for each in brokers if each.broker_epoch >= 0 and each.port > 0]
        if now - self._disks_s < DISKS_EVERY_S or len(live) > MOST_DISKS:
            return
        self._disks_s = now
        asked = {each.broker_id: disk_used(each.host, each.port) for each in live}
        self._disks = {broker: used for broker, used in asked.items() if used is not None}


def disk_used(host: str, port: int) -> float | None:
    """How full the fullest volume with a log directory of a broker is, 0 to 1; None where it does not tell."""
    from regency.kafka.codec import DescribeLogDirsRequest

    peer = PeerConnection(
        host, port, client_id="regency-cli", connect_timeout_ms=DISK_TIMEOUT_MS, request_timeout_ms=DISK_TIMEOUT_MS
    )
    try:
        answer = peer.exchange(DescribeLogDirsRequest(version=DISK_VERSION, topics=[]), DISK_VERSION)
    except PeerUnavailable:
        return None
    finally:
        peer.close()
    return max(
        (1 - each.usable_bytes / each.total_bytes for each in answer.results if each.total_bytes > 0), default=None
    )


def _is_too_old(error: RpcFailed) -> bool:
    """Whether the controller is of a version that has no summary."""
    return "unimplemented" in str(error)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
