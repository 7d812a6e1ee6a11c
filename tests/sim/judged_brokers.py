"""Brokers with real logs that are moved by hand, and the rules of replicas that look at them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from simulation.disk_files import File
from simulation.judging.facts import Facts
from simulation.judging.hosted_rows import HostedRows
from simulation.judging.replica_rules import ReplicaRules
from simulation.judging.zookeeper_rules import StateRecord, TopicRecord, ZookeeperRules

from regency.model.facts import ReplicaAssignment
from regency.model.ids import BrokerId, TopicPartition


def _load_builders() -> ModuleType:
    path = Path(__file__).parents[1] / "unit" / "replication" / "conftest.py"
    spec = importlib.util.spec_from_file_location("judged_replication_builders", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


builders = _load_builders()
TP: TopicPartition = builders.TP


def file_of(path: Path) -> File:
    file = File(0)
    file.write(path.read_bytes(), 0)
    return file


class Judged:
    """A cluster moved by hand, and the rules that look at it."""

    def __init__(self, root: Path) -> None:
        self.cluster = builders.Cluster(root, min_insync_replicas=2)
        self.facts = Facts()
        self.facts.min_insync[TP.topic] = 2
        self.zookeeper = ZookeeperRules(self.facts, lambda: 0)
        self.agents: dict[BrokerId, Any] = {}
        self.rules = ReplicaRules(self, self.facts, self.zookeeper, lambda _, path: file_of(path))
        self.hosted: dict[int, HostedRows] = {}
        for number in (1, 2, 3):
            self.start(number)
        self.cluster.lead(1)
        self.look()

    def __getitem__(self, number: int) -> Any:
        return self.cluster[number]

    def start(self, number: int) -> None:
        """Another process of a broker is looked at."""
        broker = self.cluster[number]
        agent = SimpleNamespace(
            broker_id=broker.id,
            process=SimpleNamespace(alive=True, clock=self.cluster.clock),
            replicas=broker.manager,
            logs=broker.logs,
            leaving=False,
        )
        self.agents[broker.id] = agent
        self.hosted[number] = HostedRows(agent)  # type: ignore[arg-type]

    def copy_state(self) -> None:
        """What the cluster's state znode says is in ZooKeeper."""
        state = self.cluster.states[TP]
        topic = self.zookeeper.topics.setdefault(TP.topic, TopicRecord(1))
        topic.topic_id = state.topic_id
        self.zookeeper.by_id[state.topic_id] = topic
        topic.assignments = {0: ReplicaAssignment(state.replicas)}
        topic.states[0] = StateRecord(state.leader, state.leader_epoch, state.isr, 1, state.zk_version)
        topic.leaders.setdefault(0, {})[state.leader_epoch] = state.leader
        self.facts.state_written(TP, state.leader, state.isr, state.replicas)

    def look(self) -> None:
        self.copy_state()
        for number, hosted in self.hosted.items():
            process, is_up = self.agents[BrokerId(number)].process, self.cluster[number].up
            if is_up:
                self.rules.look(hosted)
            elif process.alive:
                self.rules.died(hosted)
            process.alive = is_up
        self.rules.look_at([TP])
        unlooked, self.facts.unlooked = self.facts.unlooked, []
        self.rules.check_promises(unlooked)

    def produce(self, value: str) -> None:
        leader = self.cluster.states[TP].leader
        results = self.cluster[leader].produce(value)
        self.cluster.run()
        self.promise(value, results[0].base_offset)

    def promise(self, value: str, offset: int) -> None:
        batch = builders.make_batch(value, timestamp=self.cluster.record_timestamp)
        self.facts.acknowledged(TP, offset, batch)


def three_records(root: Path) -> Iterator[Judged]:
    """A cluster whose partition has three records, until it is closed."""
    judged = Judged(root)
    for value in ("a", "b", "c"):
        judged.produce(value)
        judged.look()
    yield judged
    judged.cluster.close()
