"""`regency history`: what was decided in the cluster, one line for each event."""

from __future__ import annotations

import difflib
import re
import time

import click
import msgspec

from regency.cli.asking.refusals import check_partition
from regency.cli.asking.wire import ClusterWire, cluster_wire
from regency.cli.cluster.histories import Histories, by_line, print_histories, read_histories, with_dead_hosts
from regency.cli.context import cluster_options, completed, current
from regency.cli.exits import CommandFailed
from regency.cli.moments import Moment
from regency.history.events import Event, change_of, events_of, step_of
from regency.history.records import Decision
from regency.protos import inspection_pb2 as pb

LAST = 20
"""Events that are shown where neither a time nor a number of them is given."""
_LOOK_BACK_MS = (600_000, 7_200_000, 86_400_000)
"""The last events are looked for so far back, further where there are too few, then in all there is."""
_BROKER = re.compile(r"broker (\d+)")
_PARTITION = re.compile(r"(?!broker )(\S+) (\d+)")


@click.command()
@click.option("--since", type=Moment(), default=0, help="From then on: 10m ago, 14:30, 2026-05-04T14:30.")
@click.option("--until", type=Moment(), default=0, help="Up to then.")
@click.option("-n", "--last", type=click.IntRange(min=1), help=f"The last N events.  [default: {LAST} without --since]")
@click.option(
    "--subject",
    shell_complete=completed("topics"),
    help="About this alone: a topic, flights-3, `broker 2`, `controller`.",
)
@click.option("--partitions", is_flag=True, help="A line for every partition, not one for all of an event.")
@cluster_options
def history(since: int, until: int, last: int | None, subject: str | None, partitions: bool) -> None:
    """Tell what was decided in the cluster, by controllers and by leaders, and why: one line for each event.

    EPOCH is the controller epoch. A line counts the partitions that lost a replica or have a new leader; --partitions
    names each of them with its reason, and so does --subject with one of them. -o json has every record.

    \b
    Examples:
      regency history
      regency history -n 5 --partitions
      regency history --since 14:30 --until 14:35 --subject 'broker 2'
      regency history --since 1d --subject flights -o json
    """
    if until and until < since:
        raise click.UsageError("--until is before --since.")
    if subject is not None and (partition := _PARTITION.fullmatch(subject)) is not None:
        subject = f"{partition[1]}-{partition[2]}"
    most = LAST if last is None and not since else last
    each_record = partitions or current().json
    with cluster_wire(current().bootstrap_servers()) as wire:
        found, events = _search(wire, _Asked(subject, since, until, most, each_record))
        if not events and subject is not None:
            _refuse_unknown(wire, subject)
        found = with_dead_hosts(wire, found)
    shown = {id(each) for event in events for each in event.decisions}
    decisions = [each for each in found.decisions if id(each) in shown]
    if each_record:
        lines = [[*by_line(each), f"{each.subject}: {step_of(each)} ({each.why})"] for each in decisions]
    else:
        lines = [[event.time_ms, event.controller_epoch, event.by, event.told] for event in events]
    what = "decided" if subject is None else f"decided about {subject}"
    print_histories(
        msgspec.structs.replace(found, decisions=decisions),
        ["WHEN", "EPOCH", "BY", "WHAT"],
        lines,
        f"Nothing was {what}{' then' if since or until else ''}",
    )


class _Asked(msgspec.Struct, frozen=True):
    subject: str | None
    since_ms: int
    until_ms: int
    last: int | None
    each_record: bool
    """Whether records are shown one by one, those about the subject alone."""


def _search(wire: ClusterWire, asked: _Asked) -> tuple[Histories, list[Event]]:
    """What is to be shown, and the events it is of. The last ones are not searched for in all that is kept."""
    now = asked.until_ms or int(time.time() * 1000)
    backs = () if asked.last is None else _LOOK_BACK_MS
    sinces = [since for back in backs if (since := now - back) > asked.since_ms]
    for since in (*sinces, asked.since_ms):
        found, events = _read(wire, asked, since)
        if since == asked.since_ms or (asked.last is not None and len(events) > asked.last):
            break  # one more than wanted: the first may have begun before
    return found, events if asked.last is None else events[-asked.last :]


def _read(wire: ClusterWire, asked: _Asked, since_ms: int) -> tuple[Histories, list[Event]]:
    request = pb.ReadHistoryRequest(since_ms=since_ms, until_ms=asked.until_ms)
    subject = asked.subject
    named = subject is not None and (subject == "controller" or _BROKER.fullmatch(subject) is not None)
    whole = named and not asked.each_record  # an event's line counts partitions: it takes all of its records
    if subject is not None and not whole:
        request.subjects.extend([subject, f"topic {subject}"])
        request.topic = subject
    found = read_histories(wire, request)
    events = events_of(found.decisions)
    return found, [each for each in events if _concerns(each, subject)] if whole and subject is not None else events


def _concerns(event: Event, subject: str) -> bool:
    """Whether an event is about the controller or a broker: what it did as controller, and its way into ISRs, too."""
    number = _BROKER.fullmatch(subject)
    return any(_is_about(each, subject, None if number is None else int(number[1])) for each in event.decisions)


def _is_about(decision: Decision, subject: str, broker: int | None) -> bool:
    if decision.subject == subject:
        return True
    if decision.role == "agent" and broker is not None:
        change = change_of(decision)
        return change is not None and broker in set(change.isr_before) ^ set(change.isr)
    return decision.subject == "controller" and decision.source == broker


def _refuse_unknown(wire: ClusterWire, subject: str) -> None:
    """Raise CommandFailed for a subject that neither is in the cluster now nor has a record of any time."""
    topics = {each.name: [facts.partition_index for facts in each.partitions] for each in wire.topics()}
    brokers = [f"broker {each}" for each in sorted({*wire.controllers(), *wire.dead_brokers()})]
    named = re.fullmatch(r"(.+)-(\d{1,9})", subject)
    of_topic = topics.get(named[1], []) if named is not None else []
    known = {"controller", *brokers, *topics}
    if subject in known or (named is not None and int(named[2]) in of_topic):
        return
    request = pb.ReadHistoryRequest(subjects=[subject, f"topic {subject}"], topic=subject)
    if read_histories(wire, request).decisions:
        return
    if named is not None and of_topic:
        check_partition(named[1], of_topic, int(named[2]))
    number = re.fullmatch(r"(?i)(?:broker)?[ _-]*(\d*)", subject)
    if number is None:
        near = difflib.get_close_matches(subject, sorted(known), n=3)
    else:
        near = [each for each in brokers if each == f"broker {number[1]}"] or brokers[:3]
    meant = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
    raise CommandFailed(
        f"There is no {subject!r} in this cluster, and nothing was ever decided about one.",
        hint=f"{meant}A subject is a topic (flights), a partition (flights-3), 'broker 2' or controller.",
    )
