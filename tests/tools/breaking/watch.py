"""Watches a cluster's ZooKeeper while it is being broken, and writes down every promise that it breaks."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from regency.cluster.health import ClusterSnapshot, PartitionView
from regency.cluster.observer import ClusterObserver
from regency.model.errors import RegencyError
from regency.model.facts import LeaderAndIsr
from regency.model.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition

_EVERY_S = 0.05


class Invariants:
    """What must hold from one look to the next, for partitions that are neither deleted nor created again. Passive."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        """One sentence for each promise that did not hold."""
        self._controller_epoch = ControllerEpoch(0)
        self._last: dict[TopicPartition, LeaderAndIsr] = {}
        self._leaders: dict[tuple[TopicPartition, LeaderEpoch], BrokerId] = {}

    def look(self, snapshot: ClusterSnapshot) -> None:
        if snapshot.controller_epoch < self._controller_epoch:
            self._broke(f"controller epoch {self._controller_epoch} went back to {snapshot.controller_epoch}")
        self._controller_epoch = max(self._controller_epoch, snapshot.controller_epoch)
        self._look_at_partitions(snapshot.partitions)

    def _look_at_partitions(self, partitions: Mapping[TopicPartition, PartitionView]) -> None:
        for partition, view in partitions.items():
            if view.leadership is not None:
                self._look_at(partition, view.assignment.replicas, view.leadership)
                self._last[partition] = view.leadership

    def _look_at(self, partition: TopicPartition, replicas: tuple[BrokerId, ...], now: LeaderAndIsr) -> None:
        before = self._last.get(partition)
        if now.has_leader and now.leader not in now.isr:
            self._broke(f"{partition} is led by {now.leader}, which is not in its ISR {list(now.isr)}")
        if not set(now.isr) <= set(replicas) or len(set(now.isr)) != len(now.isr) or not now.isr:
            self._broke(f"{partition} has ISR {list(now.isr)} with replicas {list(replicas)}")
        if before is not None and now.leader_epoch < before.leader_epoch:
            self._broke(f"{partition} went back from leader epoch {before.leader_epoch} to {now.leader_epoch}")
        leader = self._leaders.setdefault((partition, now.leader_epoch), now.leader)
        if leader != now.leader:
            self._broke(f"{partition} had leaders {leader} and {now.leader} in leader epoch {now.leader_epoch}")

    def _broke(self, words: str) -> None:
        if words not in self.broken:
            self.broken.append(words)


class InvariantWatcher:
    """Looks many times a second, from a thread and a ZooKeeper session of its own, until closed."""

    def __init__(self, zookeeper_connect: str, *, session_timeout_ms: int) -> None:
        self.invariants = Invariants()
        self.looks = 0
        self._observer = ClusterObserver(zookeeper_connect, session_timeout_ms=session_timeout_ms)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="invariant-watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._observer.close()

    def _run(self) -> None:
        while not self._closed.wait(_EVERY_S):
            try:
                self.invariants.look(self._observer.snapshot())
            except RegencyError:
                continue  # ZooKeeper is what is being broken now
            self.looks += 1
