"""Writes the ISR decisions of this broker's leaders into the decision history, for `explain`. ISR writer's thread."""

from __future__ import annotations

from regency.broker_agent.ports import IsrChange, IsrWritten
from regency.history.records import Decision
from regency.history.writer import HistoryWriter
from regency.model.clock import Clock
from regency.model.ids import BrokerId


class IsrHistory:
    """Numbers decisions over the life of the agent's files. One thread."""

    def __init__(self, broker: BrokerId, writer: HistoryWriter, clock: Clock) -> None:
        self._broker = broker
        self._writer = writer
        self._clock = clock
        self._number = writer.last_number()

    def record(self, change: IsrChange, written: IsrWritten) -> None:
        """Record one change that is in ZooKeeper now."""
        self._number += 1
        grown = len(change.isr) > len(change.previous)
        self._writer.write(
            [
                Decision(
                    controller_epoch=change.controller_epoch,
                    number=self._number,
                    event="isr_expand" if grown else "isr_shrink",
                    subject=str(change.topic_partition),
                    from_=f"isr {list(change.previous)}",
                    to=f"isr {list(change.isr)}, leader epoch {change.leader_epoch}, version {written.zk_version}",
                    why=change.why,
                    time_ms=self._clock.wall_ms(),
                    source=self._broker,
                    role="agent",
                    leader=self._broker,
                    isr=change.isr,
                    leader_epoch=change.leader_epoch,
                    version=written.zk_version,
                )
            ]
        )
