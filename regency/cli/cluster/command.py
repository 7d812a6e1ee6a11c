"""`regency cluster health`: whether everything is led and in sync, over Kafka's protocol, with waiting."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext

import click
import msgspec

from regency.cli.asking.controllers import ControllerFacts, newest_ruler, nobody_rules
from regency.cli.asking.sufferers import RefusedTopic, refused_topics
from regency.cli.asking.wire import TopicFacts, cluster_wire
from regency.cli.context import Seconds, cluster_options, conclude, current, print_json, say
from regency.cli.exits import CommandFailed, Exit
from regency.cli.waiting import waiting
from regency.clients.nodes import Node
from regency.cluster.health import phrase
from regency.cluster.state import read_state
from regency.model.ids import BrokerId
from regency.model.words import counted

_LOOK_EVERY_S = 0.5
_REFUSED_SHOWN = 20


class Health(msgspec.Struct, frozen=True):
    """What `regency cluster health -o json` prints. Counts are None where no broker answers."""

    healthy: bool
    problems: list[str]
    controller: int | None = None
    controller_epoch: int | None = None
    brokers: list[int] | None = None
    topics: int | None = None
    partitions: int | None = None
    under_replicated: int | None = None
    leaderless: int | None = None
    refused: list[RefusedTopic] = []
    """Topics that refuse reads or writes now."""


@click.group()
@cluster_options
def cluster() -> None:
    """Look at the cluster as a whole.

    \b
    Example:
      regency cluster health --wait
    """


@cluster.command(short_help="Tell whether the cluster is healthy.")
@click.option("--wait", is_flag=True, help="Wait until it is healthy.")
@click.option("--timeout", type=Seconds(0), default=60.0, show_default=True, help="Seconds to wait at most.")
@cluster_options
def health(wait: bool, timeout: float) -> int:
    """Tell whether the cluster is healthy: exit status 0 if so, 3 where something is missing.

    With --wait: exit status 5 when it is not healthy within --timeout.

    Healthy: a controller rules and every broker has acknowledged what it decided, every broker that partitions are
    assigned to is live (and every broker of the cluster in --dir) and answers within 2 s, every partition is led and
    all of its replicas are in sync. Topics that refuse reads or writes are told with the reason.

    \b
    Examples:
      regency cluster health
      regency cluster health --wait --timeout 120 && regency topics describe
      regency cluster health -o json | jq '.problems, .refused'
    """
    deadline = time.monotonic() + timeout
    found = look(last=not wait)
    with waiting(lambda: f"Not healthy: {phrase(found.problems)}") if wait else nullcontext():
        while wait and not found.healthy and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
            found = look(last=False)
        if wait:
            found = msgspec.structs.replace(found, refused=look(last=True).refused)
    if current().json:
        print_json(found)
    elif found.healthy:
        click.echo(
            f"healthy: {counted(len(found.brokers or ()), 'broker')}, controller {found.controller} in epoch "
            f"{found.controller_epoch}, {counted(found.topics or 0, 'topic')}, "
            f"{counted(found.partitions or 0, 'partition')}"
        )
    else:
        click.echo(f"not healthy: {phrase(found.problems)}")
    for topic in found.refused[:_REFUSED_SHOWN]:
        conclude(topic.told)
    if len(found.refused) > _REFUSED_SHOWN:
        conclude(f"and {len(found.refused) - _REFUSED_SHOWN} more; -o json has all of them")
    if wait and not found.healthy:
        say(f"Not healthy within {timeout:g} s.")
    if found.healthy:
        return Exit.DONE
    return Exit.TIMED_OUT if wait else Exit.UNHEALTHY


def look(*, last: bool) -> Health:
    """The cluster's health now; topics that refuse something in the `last` look only, for all settings are read."""
    servers = current().bootstrap_servers()
    try:
        with cluster_wire(servers) as wire:
            nodes, controllers, topics = wire.brokers(), wire.controller_facts(), wire.topics()
            silent = wire.silent_brokers()
            refused = refused_topics(wire, topics, silent) if last else []
    except CommandFailed as error:
        if error.status is Exit.USAGE:  # an address that is none says nothing of the cluster
            raise
        return Health(False, [error.message.rstrip(".")])
    return msgspec.structs.replace(judge(nodes, controllers, topics, _expected(), silent), refused=refused)


def judge(
    nodes: Mapping[BrokerId, Node],
    controllers: Sequence[ControllerFacts],
    topics: Sequence[TopicFacts],
    expected: Collection[int] = (),
    silent: Collection[int] = (),
) -> Health:
    """What is missing before the cluster is healthy. Pure."""
    rule = [facts for facts in controllers if facts.rules]
    problems = [] if rule else [nobody_rules(controllers).rstrip(".").replace("No controller", "no controller", 1)]
    if len(rule) > 1:
        problems.append(f"the controllers of brokers {', '.join(str(each.broker) for each in rule)} say that they rule")
    partitions = [(topic.name, partition) for topic in topics for partition in topic.partitions]
    named = {replica for _, partition in partitions for replica in partition.replica_nodes}
    if rule:
        problems += [
            f"broker {each.broker} has no contact with ZooKeeper" for each in controllers if each.in_contact is False
        ]
    problems += [f"broker {broker} does not answer (frozen, cut off, or just died)" for broker in silent]
    problems += [f"broker {broker} is not live" for broker in sorted({*named, *expected} - {*map(int, nodes)})]
    leaderless = [(name, each) for name, each in partitions if each.leader_id < 0]
    behind = [(name, each) for name, each in partitions if each.out_of_sync]
    problems += [f"{name}-{each.partition_index} has no leader" for name, each in leaderless]
    problems += [f"{name}-{each.partition_index} lacks {each.out_of_sync} in its ISR" for name, each in behind]
    newest = newest_ruler(rule)
    never_led = max(0, ((newest.leaderless if newest else None) or 0) - len(leaderless))
    if never_led:  # brokers hear of no partition that never had a leader, so metadata does not show it
        problems.append(f"the controller knows of {never_led} more without a leader (`regency doctor` names them)")
    if newest is not None and newest.unacknowledged:
        problems.append(f"{newest.unacknowledged} decisions are not acknowledged by their brokers yet")
    return Health(
        healthy=not problems,
        problems=problems,
        controller=None if newest is None else newest.broker,
        controller_epoch=None if newest is None else newest.epoch,
        brokers=[int(broker) for broker in nodes],
        topics=len(topics),
        partitions=len(partitions),
        under_replicated=len(behind),
        leaderless=len(leaderless) + never_led,
    )


def _expected() -> list[int]:
    """Brokers of the cluster in the directory, where that is the one that is looked at."""
    if current().bootstrap:
        return []
    state = read_state(current().directory)
    return [] if state is None else [broker.id for broker in state.brokers]
