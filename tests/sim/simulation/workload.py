"""The clients of a run: producers and consumers, their deaths and successors, and the history they leave."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from regency.judge.operations import Compacted, Drained, FinalRead, Operation
from regency.judge.table import Allowance, Configuration
from regency.model.ids import BrokerId, TopicPartition
from simulation.clients.consumer import Consumer
from simulation.clients.history import FinalReader, History, ended_ms
from simulation.clients.producer import Producer, ProducerConfig
from simulation.deletions import Recreations
from simulation.judging.facts import Facts
from simulation.kernel.scheduler import Process
from simulation.world import World

MODES: dict[str, ProducerConfig] = {
    "idempotent": ProducerConfig(),
    "plain": ProducerConfig(idempotent=False, records_per_s=2.0),
    "hasty": ProducerConfig(delivery_timeout_ms=5_000),
    "leader": ProducerConfig(acks=1, idempotent=False, records_per_s=2.0),
}
"""Producers by the names that shapes give them."""


class Workload:
    """Clients from `start` to `end`. `unfinished` drives the final read."""

    def __init__(self, world: World, facts: Facts) -> None:
        self._world = world
        self._facts = facts
        self._history = History()
        self._brokers: Sequence[BrokerId] = list(world.hosts)
        self._partitions = [
            TopicPartition(topic.name, number) for topic in world.shape.topics for number in range(topic.partitions)
        ]
        self._producers: list[tuple[Process, str, Producer]] = []
        self._consumers: list[tuple[Process, Consumer]] = []
        self._processes: list[Process] = []
        self._started = False
        self._stopped = False
        self._drained_ms = 0
        self._final: FinalReader | None = None
        self._recreations = Recreations(world, facts)
        self._wrong_ms = {f"producer-{number}": by for number, by in enumerate(world.shape.wrong_clocks_ms)}
        """By how much wall clocks are wrong."""
        self._keyed = frozenset(topic.name for topic in world.shape.topics if topic.is_keyed)
        facts.compacted_topics |= self._keyed
        for topic in world.shape.topics:
            facts.min_insync[topic.name] = topic.min_insync

    @property
    def records(self) -> int:
        return sum(producer.acknowledged for _, _, producer in self._producers)

    def start(self) -> None:
        self._started = True
        if self._stopped:
            return
        for number, mode in enumerate(self._world.shape.producers):
            self._start_producer(f"producer-{number}", mode)
        for number in range(self._world.shape.consumers):
            self._start_consumer(f"consumer-{number}")

    def stop(self) -> None:
        self._stopped = True
        for _, _, producer in self._producers:
            producer.stop()
        for _, consumer in self._consumers:
            consumer.settle()

    def kill_client(self, detail: float) -> None:
        """One client dies, and another begins in its place. `detail` in [0, 1) says which."""
        alive = [index for index, process in enumerate(self._processes) if process.alive]
        if not alive or self._stopped:
            return
        process = self._processes[alive[int(detail * len(alive))]]
        process.kill()
        for owner, mode, _ in list(self._producers):
            if owner is process:
                self._start_producer(process.name, mode)
                return
        self._start_consumer(process.name)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """All consumers go on at an offset of a partition."""
        for _, consumer in self._consumers:
            consumer.seek(partition, offset)

    def look_again(self) -> None:
        """All producers ask who leads."""
        for _, _, producer in self._producers:
            producer.look_again()

    def recreating(self, topic: str) -> None:
        """A topic is about to be deleted and made anew."""
        self._recreations.begin(topic)

    def unfinished(self) -> list[str]:
        """What the clients still wait for, in words; nothing once everything is read back."""
        if not self._started:
            return ["the topics were never created"]
        reasons = [
            f"{producer.name} has records without outcome"
            for process, _, producer in self._producers
            if process.alive and not producer.drained
        ]
        if not reasons:
            reasons = [
                f"{consumer.name} is at {consumer.position(partition)} of {partition}, which ends at {end}"
                for partition, end in self._ends().items()
                for process, consumer in self._consumers
                if process.alive and (consumer.position(partition) or 0) < end
            ]
        return reasons

    def drained(self) -> None:
        """Every consumer is at the end: what it sees from now on must be everything."""
        self._drained_ms = ended_ms(self._world.scheduler.now_us)
        self._history.record(Drained(self._drained_ms))

    def unpolled(self) -> list[TopicPartition]:
        """Partitions with records that no living consumer has polled since `drained`."""
        alive = [consumer for process, consumer in self._consumers if process.alive]
        return [
            partition
            for partition, end in self._ends().items()
            if end and all(consumer.polled_ms(partition) < self._drained_ms for consumer in alive)
        ]

    def read_back(self) -> None:
        """Read everything, once the cluster has converged; `unread` tells what is left."""
        process = self._process("final-reader")
        network = self._world.network
        scheduler = self._world.scheduler
        self._final = FinalReader(
            scheduler, network, process, self._partitions, self._brokers, within_ms=20_000, keyed=self._keyed
        )
        scheduler.spawn(process, "final-reader", self._final.run)

    def unread(self) -> list[TopicPartition]:
        return list(self._final.unread) if self._final is not None else list(self._partitions)

    @property
    def reads(self) -> Sequence[FinalRead]:
        return self._final.reads if self._final is not None else ()

    def end(self) -> None:
        """Everybody goes; what has no outcome is written down."""
        for process in self._processes:
            process.kill()

    def history(self) -> list[Operation]:
        """What clients did and saw. To be called after `end`."""
        keyed = (partition for partition in self._partitions if partition.topic in self._keyed)
        compacted = [Compacted(*name) for name in sorted({*self._facts.compacted, *keyed})]
        facts: list[Operation] = [*self._facts.log_starts, *compacted]
        return [*self._history.operations, *self.reads, *facts, *self._recreations.operations()]

    def allowed(self) -> dict[TopicPartition, Allowance]:
        modes = [MODES[name] for name in self._world.shape.producers]
        configurations = [
            Configuration(
                acks=mode.acks,
                idempotent=mode.idempotent,
                min_insync_replicas=topic.min_insync,
                replication_factor=topic.replication_factor,
            )
            for topic in self._world.shape.topics
            for mode in modes
        ]
        return self._facts.allowed(configurations)

    def _ends(self) -> dict[TopicPartition, int]:
        """The high watermark of every partition, as far as any live replica knows."""
        ends = dict.fromkeys(self._partitions, 0)
        for agent in self._world.agents.values():
            if agent.process.alive and agent.replicas is not None:
                for name, partition in agent.replicas.partitions.items():
                    if name in ends:
                        ends[name] = max(ends[name], partition.log.high_watermark)
        return ends

    def _process(self, name: str) -> Process:
        process = Process(self._world.scheduler, name)
        self._processes.append(process)
        return process

    def _start_producer(self, name: str, mode: str) -> None:
        process = self._process(name)
        process.clock.step(self._wrong_ms.get(name, 0))
        world = self._world
        config = MODES[mode]
        config = msgspec.structs.replace(config, records_per_s=config.records_per_s * world.shape.load)
        producer = Producer(
            world.scheduler,
            world.network,
            process,
            self._history,
            name,
            self._partitions,
            self._brokers,
            config,
            self._keyed,
        )
        producer.on_promise = self._facts.acknowledged
        self._producers.append((process, mode, producer))
        world.scheduler.at(0, producer.start, process)

    def _start_consumer(self, name: str) -> None:
        process = self._process(name)
        world = self._world
        consumer = Consumer(
            world.scheduler,
            world.network,
            process,
            self._history,
            name,
            self._partitions,
            self._brokers,
            keyed=self._keyed,
        )
        self._consumers.append((process, consumer))
        world.scheduler.at(0, consumer.start, process)
