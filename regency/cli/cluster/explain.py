"""`regency explain` and `regency history`: what was decided, by whom and why, as all live hosts have noted it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import click
import msgspec

from regency.cli.asking.deletions import why_going
from regency.cli.asking.wire import ClusterWire, cluster_wire
from regency.cli.context import TOPIC_NAME, cluster_options, current, print_json, print_table, say
from regency.cli.exits import CommandFailed
from regency.cli.moments import Moment
from regency.clients.controllers import history_lines
from regency.history.records import Decision, decode_decision, in_order_of_states, merge_decisions, numbered_twice
from regency.model.ids import BrokerId
from regency.protos import inspection_pb2 as pb
from regency.runtime.grpc.channels import RpcFailed


class Missing(msgspec.Struct, frozen=True):
    """A host whose decisions could not be read."""

    broker: int
    why: str


class Histories(msgspec.Struct, frozen=True):
    """What all hosts that answered have written, merged, and who did not answer."""

    decisions: list[Decision]
    missing: list[Missing]


@click.command()
@click.argument("topic", type=TOPIC_NAME)
@click.argument("partition", type=click.IntRange(min=0))
@click.option("--since", type=Moment(), default=0, help="Only from then on: 10m ago, 14:30, 2026-05-04T14:30.")
@cluster_options
def explain(topic: str, partition: int, since: int) -> None:
    """Tell how a partition came to its leader and its ISR: every decision about it, by whom, and why.

    Controllers' decisions and the changes of the ISR by leaders, from the history files of all live hosts, in the order
    in which they took effect. Where the topic is being deleted, stderr says how far that is and what it waits for.

    \b
    Examples:
      regency explain flights 3
      regency explain flights 3 --since 10m
      regency explain flights 3 -o json | jq -r '.decisions[].why'
    """
    name = f"{topic}-{partition}"
    servers = current().bootstrap_servers()
    request = pb.ReadHistoryRequest(subjects=[name, f"topic {topic}"], since_ms=since)
    with cluster_wire(servers) as wire:
        found = read_histories(wire, request)
        replicas = _replicas(wire, topic, partition)
        live = wire.brokers()
    if replicas is None and not found.decisions:
        raise CommandFailed(
            f"There is no partition {name}, and nothing is known of one.", hint="See regency topics list."
        )
    dead = [
        Missing(each, f"broker {each} has a replica and is not live.") for each in replicas or () if each not in live
    ]
    missing = [*found.missing, *dead]
    decisions = in_order_of_states(found.decisions)
    _tell(Histories(decisions, missing), _of_partition(decisions), f"Nothing was decided about {name}")
    going = why_going(servers, topic) if replicas is None else None
    if replicas is None:
        say(going or f"No broker knows of partition {name} now: it is gone, or never had a leader.")


@click.command()
@click.option("--since", type=Moment(), required=True, help="From then on: 10m ago, 14:30, 2026-05-04T14:30.")
@click.option("--until", type=Moment(), default=0, help="Up to then.")
@click.option("--subject", help="About this alone: a topic, flights-3, `broker 2`, `controller`.")
@cluster_options
def history(since: int, until: int, subject: str | None) -> None:
    """Tell what was decided in the cluster, by controllers and by leaders, and why.

    \b
    Examples:
      regency history --since 10m
      regency history --since 14:30 --until 14:35 --subject 'broker 2'
      regency history --since 1d --subject flights -o json
    """
    if until and until < since:
        raise click.UsageError("--until is before --since.")
    request = pb.ReadHistoryRequest(since_ms=since, until_ms=until)
    if subject is not None:
        request.subjects.extend([subject, f"topic {subject}"])
        request.topic = subject
    with cluster_wire(current().bootstrap_servers()) as wire:
        found = read_histories(wire, request)
    _tell(found, _of_cluster(found.decisions), "Nothing was decided then")


def read_histories(wire: ClusterWire, request: pb.ReadHistoryRequest) -> Histories:
    """Ask every live host. Raises CommandFailed where none answers."""
    read: list[list[Decision]] = []
    missing: list[Missing] = []
    nodes = wire.controllers()
    for broker, node in sorted(nodes.items()):
        try:
            decisions = map(decode_decision, history_lines(node.address, request))
            read.append([each for each in decisions if each is not None])
        except RpcFailed as error:
            missing.append(Missing(broker, str(error)))
    if not read:
        why = missing[0].why if missing else "there are no live brokers."
        raise CommandFailed(f"No host can be asked for its history: {why}")
    return Histories(merge_decisions(read), missing)


def _replicas(wire: ClusterWire, topic: str, partition: int) -> list[BrokerId] | None:
    """Who has replicas of the partition; None where there is no such partition now."""
    for found in wire.topics([topic]):
        for facts in found.partitions:
            if facts.partition_index == partition:
                return [BrokerId(replica) for replica in facts.replica_nodes]
    return None


def _tell(found: Histories, rows: Sequence[Sequence[object]], nothing: str) -> None:
    doubts = numbered_twice(found.decisions)
    if current().json:
        told = [{"time": _iso(each.time_ms), **msgspec.to_builtins(each)} for each in found.decisions]
        print_json({"decisions": told, "missing": found.missing, "numbered_twice": doubts})
    elif found.decisions:
        print_table(rows)
    else:
        say(f"{nothing}, as far as the histories of the live brokers go.")
    for each in found.missing:
        say(f"Without the history of broker {each.broker}: {each.why}")
    for doubt in doubts:
        say(f"The {doubt.role} process of broker {doubt.source}: {doubt.why}.")


def _of_partition(decisions: Iterable[Decision]) -> list[list[object]]:
    table: list[list[object]] = [["WHEN", "TERM", "BY", "EVENT", "LEADER", "ISR", "EPOCH", "WHY"]]
    for each in decisions:
        leader = "none" if each.leader is not None and each.leader < 0 else each.leader
        why = each.why if each.leader is not None else f"{_step(each)}: {each.why}"
        table.append([*_begin(each), leader, each.isr, each.leader_epoch, why])
    return table


def _of_cluster(decisions: Iterable[Decision]) -> list[list[object]]:
    table: list[list[object]] = [["WHEN", "TERM", "BY", "EVENT", "SUBJECT", "DECIDED", "WHY"]]
    return table + [[*_begin(each), each.subject, _step(each), each.why] for each in decisions]


def _begin(decision: Decision) -> list[object]:
    """When, in which term and by whom it was decided, and because of which event."""
    by = f"{'leader' if decision.role == 'agent' else decision.role} {decision.source}"
    return [_local(decision.time_ms), decision.controller_epoch, by, decision.event]


def _step(decision: Decision) -> str:
    return f"{decision.from_} -> {decision.to}"


def _local(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03}"


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
