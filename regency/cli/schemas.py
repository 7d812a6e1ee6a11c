"""What commands print with `-o json`, as types, from which schemas are made; and `regency schema`, which prints one."""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import Any, Final

import click
import msgspec

from regency.cli.context import completed, print_json
from regency.cli.exits import CommandFailed, Exit

OUTPUTS: Final = {
    "brokers describe": "regency.cli.brokers.command:BrokerDetails",
    "brokers disk": "regency.cli.brokers.disk:DiskUse",
    "brokers drain": "regency.cli.partitions.plans:Report",
    "brokers forget": "regency.cli.brokers.leaving:Forgotten",
    "brokers list": "[]regency.cli.brokers.command:BrokerRow",
    "brokers shutdown": "regency.cli.brokers.leaving:ShutDown",
    "cluster health": "regency.cli.cluster.command:Health",
    "configs get": "[]regency.cli.asking.config_requests:ConfigRow",
    "configs set": "[]regency.cli.asking.config_requests:ConfigRow",
    "configs unset": "[]regency.cli.asking.config_requests:ConfigRow",
    "consume": "regency.cli.data.formats:ConsumedRecord",
    "controller resign": "regency.cli.cluster.controllers:Succession",
    "controller status": "[]regency.cli.asking.controllers:ControllerFacts",
    "demo": "regency.demo.timeline:DemoReport",
    "deploy-files": "regency.cli.shipped:Copied",
    "docs": "[]regency.cli.shipped:Page",
    "doctor": "regency.cli.cluster.doctor:Diagnosis",
    "down": "regency.cli.lab.cluster:Down",
    "explain": "regency.cli.cluster.histories:Told",
    "groups delete": "[]regency.cli.groups.removing:DeletedGroup",
    "groups describe": "[]regency.cli.groups.facts:GroupDetails",
    "groups list": "[]regency.cli.groups.command:GroupRow",
    "groups offsets": "regency.cli.groups.removing:GroupOffsets",
    "groups reset-offsets": "regency.cli.groups.resetting:Reset",
    "history": "regency.cli.cluster.histories:Told",
    "judge": "regency.judge.findings:Verdict",
    "lab kill": "[]regency.cluster.verbs:Done",
    "lab pause": "[]regency.cluster.verbs:Done",
    "lab restart": "[]regency.cluster.verbs:Done",
    "lab resume": "[]regency.cluster.verbs:Done",
    "lab start": "[]regency.cluster.verbs:Done",
    "lab stop": "[]regency.cluster.verbs:Done",
    "leaders elect": "[]regency.cli.cluster.leaders:ElectionRow",
    "load": "regency.cli.data.load:Loaded",
    "log dirs": "[]regency.cli.log.command:LogDirRow",
    "log dump": "regency.cli.log.dump.command:DumpedFact",
    "log move": "regency.cli.log.command:Moved",
    "logs": "regency.cluster.logs:Entry",
    "partitions cancel": "regency.cli.partitions.command:Cancelled",
    "partitions execute": "regency.cli.partitions.command:Executed",
    "partitions list": "[]regency.cli.partitions.command:OngoingRow",
    "partitions plan": "regency.cli.partitions.plans:Report",
    "partitions verify": "regency.cli.partitions.plan_execution:Verdict",
    "pipeline cluster-history": "regency.pipeline.jobs.cluster_history.summary:Summary",
    "pipeline flights": "regency.pipeline.jobs.flights.job:FlightsCounts",
    "pipeline judge": "regency.judge.findings:Verdict",
    "pipeline replica-audit": "regency.cli.verify.report:Verification",
    "produce": "regency.cli.data.produce:Produced",
    "status": "regency.cluster.status:ClusterStatus",
    "top": "regency.cli.top.snapshot:Snapshot",
    "topics alter": "regency.cli.topics.alter:AlteredTopic",
    "topics create": "regency.cli.topics.command:CreatedRow",
    "topics delete": "[]regency.cli.topics.delete:DeletedRow",
    "topics describe": "[]regency.cli.topics.replicas:PartitionRow",
    "topics list": "[]regency.cli.topics.command:TopicRow",
    "topics set-rf": "regency.cli.partitions.plans:Report",
    "topics truncate": "[]regency.cli.topics.truncate:TruncatedRow",
    "up": "regency.cli.lab.cluster:Started",
    "verify replicas": "regency.cli.verify.report:Verification",
}
"""Commands, and `module:Type` of their document; with [] before it a list."""
LINES: Final = frozenset({"consume", "log dump", "logs"})
"""Commands that print a document a line."""


def output_type(command: str) -> Any:
    """The type of what the command prints. Raises KeyError."""
    where = OUTPUTS[command]
    module, _, name = where.removeprefix("[]").partition(":")
    found: Any = getattr(importlib.import_module(module), name)
    return list[found] if where.startswith("[]") else found


@click.command(short_help="Print the JSON schema of what a command prints with -o json.")
@click.argument("command", nargs=-1, metavar="[COMMAND]...", shell_complete=completed("schemas"))
def schema(command: tuple[str, ...]) -> None:
    """Print the JSON schema of what COMMAND prints with -o json; without COMMAND the commands that have one.

    Fields may be added in later versions; those that are there keep name and meaning.

    \b
    Examples:
      regency schema
      regency schema cluster health
    """
    if not command:
        click.echo("\n".join(OUTPUTS))
        return
    name = " ".join(command)
    if name not in OUTPUTS:
        near = (
            get_close_matches(name[:100], OUTPUTS, 1) or [each for each in OUTPUTS if each.startswith(f"{name} ")][:2]
        )
        hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise CommandFailed(
            f"No schema is known of {name!r}.", hint=f"{hint}`regency schema` lists them.", status=Exit.USAGE
        )
    print_json(msgspec.json.schema(output_type(name)))
