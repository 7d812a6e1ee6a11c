"""What befalls the records of one partition: a client deletes the oldest, and holes come to be in a leader's log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regency.broker_agent.log.append_rules import Origin
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.log.segments.segments import AppendInfo
from regency.broker_agent.replication.delete_records import TO_HIGH_WATERMARK
from regency.kafka.record_batch import BatchHeader, Buffer, read_header, stamp
from regency.model.ids import LeaderEpoch, Offset, TopicPartition
from simulation.clients.view import addresses
from simulation.cluster.agent import DeleteAsked
from simulation.cluster.channels import CLIENTS
from simulation.faults.plan import Fault, Kind
from simulation.faults.stage import Deed, Stage
from simulation.kernel.scheduler import Process
from simulation.world import Host

TIMEOUT_MS = 4_000
WIDEST = 4
"""Offsets of a hole."""


def deeds(stage: Stage) -> dict[Kind, Deed]:
    faults = _LogFaults(stage)
    return {Kind.DELETE_RECORDS: faults.delete_records, Kind.HOLES: faults.make_holes}


class _LogFaults:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world
        self._client = Process(stage.world.scheduler, "deleter")

    def delete_records(self, fault: Fault, host: Host) -> None:
        """A client deletes records of partitions that the broker leads: some, all that is committed, or too much."""
        chance = fault.chance()
        led = _led_by(host)
        if not led:
            return
        offsets = {}
        for name, log in chance.sample(sorted(led.items()), min(len(led), 2)):
            among = (TO_HIGH_WATERMARK, log.high_watermark, log.log_end_offset, log.log_end_offset + 1)
            some = chance.randint(log.log_start_offset, max(log.log_start_offset, log.high_watermark))
            offsets[name] = Offset(chance.choice((*among, some, some, some)))
        self._stage.note("client", "deletes what is below %s", offsets)
        (address,) = addresses([host.broker])
        request = DeleteAsked(int(chance.choice((0.1, 0.5, 1.0)) * TIMEOUT_MS), offsets)
        self._world.network.call(self._client, CLIENTS, address, request, self._told, timeout_us=2 * TIMEOUT_MS * 1_000)

    def _told(self, answer: Any) -> None:
        self._stage.note("client", "hears of its deletions: %s", answer)

    def make_holes(self, fault: Fault, host: Host) -> None:
        """A leader's log gets a hole before what is appended next: what was there was compacted away."""
        chance = fault.chance()
        for name, log in chance.sample(sorted(_led_by(host).items()), min(len(_led_by(host)), 2)):
            self._stage.note(host.name, "%s gets a hole before what comes next", name)
            self._stage.told.compacted(name)
            _arm(log, chance.randint(1, WIDEST))


def _arm(log: PartitionLog, width: int) -> None:
    """Have the next batch that is appended stand `width` offsets above the log end."""
    if "append_as_leader" in vars(log):
        return
    append, write = log.append_as_leader, log._write

    def write_above(records: Buffer, batches: Sequence[tuple[int, BatchHeader]], now_ms: int) -> None:
        ((_, header),) = batches
        assert isinstance(records, bytearray)
        stamp(records, Offset(header.base_offset + width), LeaderEpoch(header.leader_epoch))
        write(records, [(0, read_header(records))], now_ms)

    def append_above(
        records: Buffer, leader_epoch: LeaderEpoch, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> AppendInfo:
        log._write = write_above  # type: ignore[method-assign]
        try:
            appended = append(records, leader_epoch, now_ms, origin)
        finally:
            del log._write
        if appended.duplicate:
            return appended
        del log.append_as_leader
        base, last = Offset(appended.base_offset + width), Offset(appended.last_offset + width)
        return appended._replace(base_offset=base, last_offset=last)

    log.append_as_leader = append_above  # type: ignore[method-assign]


def _led_by(host: Host) -> dict[TopicPartition, PartitionLog]:
    agent = host.agent
    if agent is None or not agent.process.alive or agent.replicas is None:
        return {}
    return {name: each.log for name, each in agent.replicas.partitions.items() if each.is_leader}
