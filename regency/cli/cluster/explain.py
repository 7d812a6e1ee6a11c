"""`regency explain`: how a partition came to its leader and its ISR, as all live hosts have noted it."""

from __future__ import annotations

import click
import msgspec

from regency.cli.asking.deletions import why_going
from regency.cli.asking.naming import existing, is_perhaps_a_partition
from regency.cli.asking.refusals import check_partition
from regency.cli.asking.wire import ClusterWire, cluster_wire
from regency.cli.cluster.histories import (
    WIDE,
    by_line,
    print_histories,
    read_histories,
    terminal_width,
    with_dead_hosts,
)
from regency.cli.context import ID, TOPIC_NAME, cluster_options, conclude, current
from regency.cli.moments import Moment
from regency.history.events import step_of
from regency.history.records import Decision, in_order_of_states
from regency.protos import inspection_pb2 as pb


@click.command()
@click.argument("topic", type=TOPIC_NAME)
@click.argument("partition", type=ID, required=False)
@click.option("--since", type=Moment(), default=0, help="Only from then on: 10m ago, 14:30, 2026-05-04T14:30.")
@cluster_options
def explain(topic: str, partition: int | None, since: int) -> None:
    """Tell how a partition came to its leader and its ISR: every decision about it, by whom, and why.

    Controllers' decisions and the changes of the ISR by leaders, from the history files of all live hosts, in the order
    in which they took effect. Where the topic is being deleted, stderr says how far that is and what it waits for.

    \b
    Examples:
      regency explain flights-3
      regency explain flights 3 --since 10m
      regency explain flights 3 -o json | jq -r '.decisions[].why'
    """
    if partition is None:
        if not is_perhaps_a_partition(topic):
            raise click.UsageError(f"Say which partition of {topic}, for example {topic}-0.")
        topic, _, number = topic.rpartition("-")
        partition = int(number)
    name = f"{topic}-{partition}"
    servers = current().bootstrap_servers()
    request = pb.ReadHistoryRequest(subjects=[name, f"topic {topic}"], since_ms=since)
    with cluster_wire(servers) as wire:
        found = with_dead_hosts(wire, read_histories(wire, request))
        known = _is_known(wire, topic, partition)
        if not known and not found.decisions:
            check_partition(topic, [each.partition_index for each in existing(wire, topic).partitions], partition)
    decisions = in_order_of_states(found.decisions)
    wide = (terminal_width() or WIDE) >= WIDE
    heads = ["WHEN", "EPOCH", "BY", "EVENT", "LEADER", "ISR", "LEADER-EPOCH", "WHY"]
    print_histories(
        msgspec.structs.replace(found, decisions=decisions),
        heads if wide else [each for each in heads if each != "EVENT"],
        [_line(each, with_event=wide) for each in decisions],
        f"Nothing was decided about {name}",
    )
    if not known:
        going = why_going(servers, topic)
        conclude(going or f"No broker knows of partition {name} now: it is gone, or never had a leader.")


def _is_known(wire: ClusterWire, topic: str, partition: int) -> bool:
    """Whether there is such a partition now."""
    return any(facts.partition_index == partition for found in wire.topics([topic]) for facts in found.partitions)


def _line(decision: Decision, *, with_event: bool) -> list[object]:
    begin = [*by_line(decision), decision.event] if with_event else by_line(decision)
    if decision.leader is None:
        return [*begin, None, None, None, f"{step_of(decision)}: {decision.why}"]
    leader = "none" if decision.leader < 0 else decision.leader
    return [*begin, leader, decision.isr, decision.leader_epoch, decision.why]
