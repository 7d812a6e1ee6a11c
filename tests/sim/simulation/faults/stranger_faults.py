"""Strangers: whoever can reach a broker can say that he rules, or that he is a follower, in any epoch."""

from __future__ import annotations

import random
from functools import partial
from typing import Any, Final

from regency.kafka.fetching.values import FetcherLimits, FetchPartition, FetchPlan
from regency.model.ids import BrokerEpoch, BrokerId
from regency.protos import control_pb2 as pb
from simulation.cluster.agent import SimAgent
from simulation.cluster.channels import CLIENTS, CONTROL, KAFKA, ControlAsked
from simulation.cluster.fetching import FetchAsked
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.stage import Deed, Stage
from simulation.kernel.scheduler import Process
from simulation.world import Host

LAST_EPOCH: Final = 2**31 - 1
NEWER: Final = (1, 1_000, 2**40)
"""How far beyond the real incarnation of a broker the one is that is made up."""

PATIENCE_US: Final = 5 * SECOND_US
LIMITS: Final = FetcherLimits(max_bytes=1 << 20, partition_max_bytes=1 << 20, min_bytes=1, max_wait_ms=0, backoff_ms=0)


def deeds(stage: Stage) -> dict[Kind, Deed]:
    return {Kind.STRANGER: partial(_visit, stage)}


def _visit(stage: Stage, fault: Fault, host: Host) -> None:
    """Every now and then somebody speaks to a broker in another's name."""
    chance = fault.chance()
    world = stage.world
    stranger = Process(world.scheduler, "stranger")
    until_us = world.scheduler.now_us + fault.for_us

    def speak() -> None:
        agent = host.agent
        if agent is not None and agent.process.alive:
            words = _as_controller(agent, chance) if chance.random() < 0.5 else _as_follower(agent, chance)
            if words is not None:
                port, request = words
                address = f"{host.name}:{port}"
                world.network.call(stranger, CLIENTS, address, request, lambda _: None, timeout_us=PATIENCE_US)
        again_us = int((0.01 + 0.1 * chance.random()) * SECOND_US)
        if world.scheduler.now_us + again_us < until_us:
            stage.later(again_us, speak)

    speak()


def _as_controller(agent: SimAgent, chance: random.Random) -> tuple[int, Any] | None:
    """A request of an epoch that nobody has won, or of who rules to an incarnation that there is not."""
    ruling = agent.metadata.ruling
    if ruling is None:
        return None
    epoch, incarnation = ruling.epoch, agent.broker_epoch()
    if chance.random() < 0.3:
        incarnation = BrokerEpoch(incarnation + chance.choice(NEWER))
    else:
        epoch = type(epoch)(chance.choice((epoch + 1_000, LAST_EPOCH)))
    header = pb.Header(controller_id=ruling.id, controller_epoch=epoch, broker_epoch=incarnation, seq=1)
    rpc = chance.choice((pb.LeaderAndIsrRequest, pb.StopReplicaRequest, pb.ShutDownRequest))
    return CONTROL, ControlAsked(rpc, rpc(header=header).SerializeToString())


def _as_follower(agent: SimAgent, chance: random.Random) -> tuple[int, Any] | None:
    """A Fetch that claims all there is of a partition, by a newer incarnation of a follower than there is."""
    partitions = {} if agent.replicas is None else agent.replicas.partitions
    led = [partition for _, partition in sorted(partitions.items()) if partition.is_leader and partition.remotes]
    if not led:
        return None
    awaited = [partition for partition in led if partition.log.high_watermark < partition.log.log_end_offset]
    partition = chance.choice(awaited or led)
    follower = BrokerId(chance.choice(sorted(partition.remotes)))
    claimed = BrokerEpoch((agent.metadata.broker_epoch(follower) or 0) + chance.choice(NEWER))
    log, epoch = partition.log, partition.leader_epoch
    everything = FetchPartition(
        partition.topic_partition,
        partition.topic_id,
        log.log_end_offset,
        1 << 20,
        epoch,
        log.epoch_at(log.log_end_offset),
        log.log_start_offset,
    )
    return KAFKA, FetchAsked(follower, FetchPlan(claimed, 0, -1, (everything,), (), {}, LIMITS))
