"""kafka_exporter's metrics of brokers, topics and partitions, from copies of what the ruling controller knows.

Offsets are what leaders reported last: a partition whose leader has not reported yet has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from regency.controller.state.reports import ReplicaReport, ReplicaReports
from regency.controller.state.topic_copies import Copies, TopicCopy
from regency.model.facts import Broker
from regency.model.hosting import HostedRole
from regency.model.ids import NO_LEADER, BrokerId, TopicPartition
from regency.runtime.metrics import table_controller as names
from regency.runtime.metrics.families import Block, Family, Wanted, block, value, values

Told = Callable[[TopicPartition], ReplicaReport | None]

_STATES: Final = (
    names.REPLICAS,
    names.IN_SYNC_REPLICAS,
    names.LEADER_IS_PREFERRED,
    names.UNDER_REPLICATED,
    names.LEADER,
)
_OFFSETS: Final = (names.CURRENT_OFFSET, names.OLDEST_OFFSET)


def topic_families(copies: Copies, reports: ReplicaReports, wanted: Wanted, *, max_partitions: int) -> Iterable[Family]:
    """All that is wanted of them; nothing per partition where there are more of these than `max_partitions`."""
    yield value(names.BROKERS, len(copies.brokers))
    yield values(names.BROKER_INFO, [((str(id_), _address(each)), 1) for id_, each in sorted(copies.brokers.items())])
    yield block(names.TOPIC_PARTITIONS, [(f'topic="{copy.name}"', copy.partitions) for copy in copies.topics])
    partitions = sum(copy.partitions for copy in copies.topics)
    yield value(names.PARTITIONS_LEFT_OUT, 0 if partitions <= max_partitions else partitions)
    if partitions <= max_partitions:
        if any(map(wanted, _STATES)):
            yield from _states(copies)
        if any(map(wanted, _OFFSETS)):
            yield from _offsets(copies, {broker: reports.reader(broker) for broker in copies.brokers})


def _states(copies: Copies) -> list[Block]:
    """Replicas, ISR and leader of every partition: formatted in one pass, a few microseconds for each."""
    lines: tuple[list[str], ...] = ([], [], [], [], [])
    replicas, in_sync, preferred, under, leaders = (each.append for each in lines)
    of_replicas, of_in_sync, of_preferred, of_under, of_leader = (name.exported for name in _STATES)
    for copy in copies.topics:
        start = f'{{topic="{copy.name}",partition="'  # names of topics hold nothing that must be escaped
        for number, assignment in enumerate(copy.assignments):
            if assignment is None or not assignment.replicas:
                continue
            leader, isr = _led_by(copy, number)
            labels, wide, deep = f'{start}{number}"}}', len(assignment.replicas), len(isr)
            replicas(f"{of_replicas}{labels} {wide}\n")
            in_sync(f"{of_in_sync}{labels} {deep}\n")
            preferred(f"{of_preferred}{labels} {1 if leader == assignment.replicas[0] else 0}\n")
            under(f"{of_under}{labels} {1 if deep < wide else 0}\n")
            if leader != NO_LEADER:
                leaders(f"{of_leader}{labels} {leader}\n")
    return [Block(name, "".join(each)) for name, each in zip(_STATES, lines, strict=True)]


def _offsets(copies: Copies, told: Mapping[BrokerId, Told]) -> list[Block]:
    """What the leader of each partition said of it, as its leader; nothing where it has not yet."""
    lines: tuple[list[str], ...] = ([], [])
    current, oldest = (each.append for each in lines)
    of_current, of_oldest = (name.exported for name in _OFFSETS)
    for copy in copies.topics:
        start = f'{{topic="{copy.name}",partition="'
        for number in range(len(copy.assignments)):
            leader, _ = _led_by(copy, number)
            ask = told.get(leader)
            report = None if ask is None else ask(TopicPartition(copy.name, number))
            if report is None or report.role is not HostedRole.LEADER or report.topic_id != copy.topic_id:
                continue
            if report.high_watermark >= 0:
                current(f'{of_current}{start}{number}"}} {report.high_watermark}\n')
            if report.log_start_offset >= 0:
                oldest(f'{of_oldest}{start}{number}"}} {report.log_start_offset}\n')
    return [Block(name, "".join(each)) for name, each in zip(_OFFSETS, lines, strict=True)]


def _led_by(copy: TopicCopy, number: int) -> tuple[BrokerId, Sequence[BrokerId]]:
    """Leader and ISR; -1 for no leader, and no member where there never was an ISR."""
    leadership = copy.leadership[number] if number < len(copy.leadership) else None
    if leadership is None:
        return NO_LEADER, ()
    now = leadership.leader_and_isr
    return (now.leader if now.leader >= 0 else NO_LEADER), now.isr


def _address(broker: Broker) -> str:
    """Where clients reach it: its first listener, as Kafka's stand before others."""
    return f"{broker.endpoints[0].host}:{broker.endpoints[0].port}" if broker.endpoints else ""
