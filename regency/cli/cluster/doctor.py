"""`regency doctor`: whether ZooKeeper, the ruling controller and every agent agree, and what to do if not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click
import msgspec

from regency.cli.asking.disks import WARN_USED, Directory, directories
from regency.cli.asking.refusals import refusal
from regency.cli.asking.sufferers import ClientFacts, RefusedTopic, clients, refused_topics
from regency.cli.asking.wire import cluster_wire
from regency.cli.context import Seconds, cluster_options, conclude, current, print_json, print_table
from regency.cli.exits import CommandFailed, Exit
from regency.clients.controllers import ask_controller
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.model.words import counted, human_bytes
from regency.protos import inspection_pb2 as pb
from regency.runtime.grpc.channels import InspectionClient, RpcFailed

_WARNINGS_SHOWN = 20
_SILENT_ADVICE = (
    "Its agent is paused, overloaded, cut off or has just died: look at its process. Others lead once its session with "
    "ZooKeeper is over."
)


class BrokerFacts(msgspec.Struct, frozen=True):
    """A live broker; `report_age_s` is None where it has not reported to this controller."""

    broker: int
    broker_epoch: int
    report_age_s: float | None
    hosted: int
    unacknowledged: int
    oldest_attempt_s: float
    last_failure: str | None


class FindingFacts(msgspec.Struct, frozen=True):
    """Something that differs."""

    subject: str
    kind: str
    where: str
    what: str
    advice: str


class Warned(msgspec.Struct, frozen=True):
    """Something that agrees and is bad nevertheless; it does not change the exit status."""

    subject: str
    kind: str
    what: str
    advice: str


class Diagnosis(msgspec.Struct, frozen=True):
    """What `regency doctor -o json` prints."""

    healthy: bool
    controller: int
    controller_epoch: int
    topics: int
    partitions: int
    leaderless: int
    brokers: list[BrokerFacts]
    problems: list[FindingFacts]
    more_problems: int
    repairs: dict[str, int]
    warnings: list[Warned] = []
    clients: list[ClientFacts] = []


@click.command()
@click.option("--full", is_flag=True, help="Have every agent report all it hosts first; takes some 10 s longer.")
@click.option(
    "--confirm", type=Seconds(0.001), default=4.0, show_default=True, help="Seconds after which to look a second time."
)
@click.option("--timeout", type=Seconds(1), default=120.0, show_default=True, help="Seconds to wait for the answer.")
@cluster_options
def doctor(full: bool, confirm: float, timeout: float) -> int:
    """Compare ZooKeeper, the ruling controller and every agent, and check what must hold. Changes nothing.

    What differs is looked at twice, and told if it still differs then. Exit status 0: healthy; 1: something
    differs, or no controller could be asked; 4: no controller rules now; 5: no answer in time.

    Besides it warns of volumes that are 85 % full, of topics that refuse reads or writes, and of clients that brokers
    have refused since their start: connections closed because of a limit, and produces that failed for want of replicas
    or of a disk. CONNECTIONS has clients and other brokers; `?` where the agent's HTTP port does not tell.

    \b
    Examples:
      regency doctor
      regency doctor --full
      regency doctor -o json | jq -r '.problems[] | .subject + ": " + .what'
    """
    with cluster_wire(current().bootstrap_servers()) as wire:
        ruling = wire.ruling()
        nodes = list(wire.brokers().values())
        frozen = wire.silent_brokers()
        refused = refused_topics(wire, wire.topics(), frozen)
    request = pb.ExamineRequest(full=full, confirm_ms=int(confirm * 1000))
    try:
        answer = ask_controller(
            ruling.address, lambda channel: InspectionClient(channel).examine, request, timeout_ms=int(timeout * 1000)
        )
    except RpcFailed as error:
        late = "deadline exceeded" in str(error)
        raise CommandFailed(str(error), status=Exit.TIMED_OUT if late else Exit.FAILED) from error
    if answer.error_code == ErrorCode.NOT_CONTROLLER:
        raise CommandFailed("The controller resigned meanwhile.", hint="Try again.", status=Exit.IN_PROGRESS)
    if answer.error_code != ErrorCode.NONE:
        raise refusal("the controller", answer.error_code, answer.message)
    if frozen:
        with cluster_wire(current().bootstrap_servers()) as wire:
            frozen = [broker for broker in wire.silent_brokers() if broker in frozen]
    served = clients(nodes)
    warnings = [*_full_volumes(directories(nodes)), *_refusing(refused), *_refused_clients(served)]
    diagnosis = msgspec.structs.replace(_diagnosis(answer, frozen), warnings=warnings, clients=served)
    if current().json:
        print_json(diagnosis)
    else:
        _tell(diagnosis)
    return Exit.DONE if diagnosis.healthy else Exit.FAILED


def _diagnosis(answer: pb.ExamineResponse, frozen: Sequence[BrokerId]) -> Diagnosis:
    """`frozen`: live brokers that twice did not answer; the controller finds their silence much later."""
    problems = [FindingFacts(each.subject, each.kind, each.where, each.what, each.advice) for each in answer.findings]
    told = {each.subject for each in problems if each.kind == "silent"}
    problems += [
        FindingFacts(f"broker {broker}", "silent", "its agent", "it is registered, and does not answer", _SILENT_ADVICE)
        for broker in frozen
        if f"broker {broker}" not in told
    ]
    return Diagnosis(
        healthy=not problems,
        controller=answer.broker_id,
        controller_epoch=answer.controller_epoch,
        topics=answer.topics,
        partitions=answer.partitions,
        leaderless=answer.offline_partitions,
        brokers=[
            BrokerFacts(
                each.broker_id,
                each.broker_epoch,
                None if each.report_age_ms < 0 else each.report_age_ms / 1000,
                each.hosted,
                each.unacknowledged,
                each.oldest_attempt_ms / 1000,
                each.last_failure or None,
            )
            for each in answer.brokers
        ],
        problems=problems,
        more_problems=answer.more_findings,
        repairs=dict(sorted(answer.repairs.items())),
    )


def _full_volumes(told: Mapping[BrokerId, list[Directory] | str]) -> Iterator[Warned]:
    for broker, found in told.items():
        for each in () if isinstance(found, str) else found:
            if each.used_share is not None and each.usable is not None and each.used_share >= WARN_USED:
                what = f"the volume of {each.path} is {each.used_share:.0%} full, {human_bytes(each.usable)} are left"
                advice = "`regency brokers disk` says what is large, how fast it grows, and when the volume is full."
                yield Warned(f"broker {broker}", "disk_fills", what, advice)


def _refusing(refused: Sequence[RefusedTopic]) -> list[Warned]:
    return [
        Warned(
            f"topic {each.topic}",
            "refuses",
            each.told.partition(": ")[2],
            f"`regency explain {each.topic}-{each.first}` says how it came to that.",
        )
        for each in refused
    ]


def _refused_clients(served: Sequence[ClientFacts]) -> Iterator[Warned]:
    for each in served:
        told = [f"{count:,} produces answered {error}" for error, count in (each.failed_produces or {}).items()]
        told += [f"{each.connections_refused:,} connections closed by a limit"] if each.connections_refused else []
        if told:
            advice = "The broker's log names clients and limits; `regency top` shows what is out of sync."
            yield Warned(f"broker {each.broker}", "clients_refused", f"{', '.join(told)}, since it started", advice)


def _tell(diagnosis: Diagnosis) -> None:
    conclude(
        f"Controller {diagnosis.controller} rules in epoch {diagnosis.controller_epoch}: "
        f"{counted(diagnosis.topics, 'topic')}, {counted(diagnosis.partitions, 'partition')}, {diagnosis.leaderless} "
        "without a leader."
    )
    table: list[list[object]] = [
        ["BROKER", "EPOCH", "REPORTED", "REPLICAS", "UNACKNOWLEDGED", "OLDEST", "CONNECTIONS", "FAILURE"]
    ]
    open_ones = {each.broker: each.connections for each in diagnosis.clients}
    for each in diagnosis.brokers:
        reported = "never" if each.report_age_s is None else f"{each.report_age_s:.1f} s ago"
        oldest = f"{each.oldest_attempt_s:.1f} s" if each.oldest_attempt_s else None
        served = open_ones.get(each.broker)
        row: list[object] = [each.broker, each.broker_epoch, reported, each.hosted, each.unacknowledged, oldest]
        table.append([*row, "?" if served is None else served, each.last_failure])
    print_table(table)
    if diagnosis.repairs:
        told = ", ".join(f"{count} {kind}" for kind, count in diagnosis.repairs.items())
        conclude(f"Differences that this controller has put right by itself: {told}.")
    for found in diagnosis.problems:
        click.echo(f"\n{found.subject} ({found.kind}), {found.where}:\n  {found.what}\n  {found.advice}")
    if diagnosis.more_problems:
        click.echo(f"\nand {diagnosis.more_problems} more")
    for warned in diagnosis.warnings[:_WARNINGS_SHOWN]:
        conclude(f"\nWarning: {warned.subject} ({warned.kind}): {warned.what}.\n  {warned.advice}")
    if len(diagnosis.warnings) > _WARNINGS_SHOWN:
        conclude(f"\nand {len(diagnosis.warnings) - _WARNINGS_SHOWN} more warnings; -o json has all of them")
    if diagnosis.healthy:
        conclude("ZooKeeper, the controller and all agents agree.")
    else:
        count = len(diagnosis.problems) + diagnosis.more_problems
        conclude(f"{count} {'thing differs' if count == 1 else 'things differ'}.")
