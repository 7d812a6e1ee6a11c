"""The rules of leaders at rest: looked at when the event that changed something is over, not in the middle of it."""

from __future__ import annotations

from regency.broker_agent.replication.api import Role
from regency.broker_agent.replication.followers import Committed
from regency.broker_agent.replication.partition import Partition
from regency.broker_agent.replication.produce import _DelayedProduce
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.model.ids import BrokerId
from simulation.judging.invariants import broken


class Unsettled:
    """Replicas of one process that have changed in an event that may not be over."""

    __slots__ = ("_changed", "_deposed", "_interrupted", "any")

    def __init__(self) -> None:
        self.any = False
        """Whether there is something to settle."""
        self._changed: list[Partition] = []
        self._deposed: list[Partition] = []
        self._interrupted = False

    def changed(self, partition: Partition) -> None:
        """The ISR that it goes by is another one."""
        self._changed.append(partition)
        self.any = True

    def deposed(self, partition: Partition) -> None:
        """It does not lead any more, or is not hosted any more."""
        self._deposed.append(partition)
        self.any = True

    def interrupted(self) -> None:
        """A step has ended in the middle of an event, which goes on by a time that has passed by then."""
        self._interrupted = self.any = True

    def settle(self, broker: BrokerId, replicas: ReplicaManager, now_ms: int) -> None:
        """The event is over, at this time of the process. Raises InvariantBroken."""
        changed, self._changed = self._changed, []
        deposed, self._deposed = self._deposed, []
        interrupted, self._interrupted = self._interrupted, False
        self.any = False
        for partition in deposed:
            check_told(f"broker {broker}, {partition.topic_partition}", replicas, partition)
        if not interrupted:
            for partition in changed:
                check_advanced(f"broker {broker}, {partition.topic_partition}", partition, now_ms)


def check_told(where: str, replicas: ReplicaManager, partition: Partition) -> None:
    """The replica does not lead, or is not hosted any more: nobody waits until it has what was appended."""
    name = partition.topic_partition
    for operation in replicas._hosting.produces._waiting.get(name, ()):
        if isinstance(operation, _DelayedProduce) and name in operation._open:
            raise broken("waiters-told", f"{where}: a produce waits at a {partition.role.value}")


def check_advanced(where: str, partition: Partition, now_ms: int) -> None:
    """The ISR is what stands in ZooKeeper: the high watermark has risen to what all of it are known to have.

    Who is no member and was caught up a moment ago may hold it back: it is about to join.
    """
    isr, log, rules = partition.isr, partition.log, partition._rules
    if partition.role is not Role.LEADER or not isinstance(isr, Committed) or log.home.failure is not None:
        return
    if len(isr.committed) < min(rules.min_insync(partition.topic_partition.topic), partition.replication_factor):
        return
    ends = [
        replica.log_end_offset
        for replica in partition.remotes.values()
        if replica.broker in isr.committed or replica.caught_up_within(rules.lag_ms, now_ms)
    ]
    allowed = min([log.log_end_offset, *ends])
    if log.high_watermark < allowed:
        raise broken(
            "watermark-advances",
            f"{where}: the high watermark stays {log.high_watermark} with {isr}, all of whose members have what is "
            f"below {allowed}",
        )
