"""`regency partitions plan | execute | verify | cancel | list`: other brokers for partitions."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from regency.cli.context import (
    FILE,
    NEW_FILE,
    Count,
    Seconds,
    cluster_options,
    completed,
    conclude,
    current,
    print_json,
    say,
    show,
)
from regency.cli.exits import CommandFailed, Exit
from regency.cli.partitions.plan_execution import (
    Verdict,
    begin,
    cancellations,
    failed,
    left_of,
    look_fitting,
    read_plan,
    verify,
    wait,
    write_rollback,
)
from regency.cli.partitions.plans import Wish, ids, make_plan, report, show_report, sizes_of
from regency.cli.partitions.reassignments import Replicas, Situation, alter, look
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.words import counted
from regency.planning.plan_file import PlanFile, PlanRefused, decode_topics, encode_kafkas, encode_plan

_ids_option = partial(click.option, callback=ids, metavar="ID,...", shell_complete=completed("brokers_of_a_list"))

F = TypeVar("F", bound=Callable[..., object])


class OngoingRow(msgspec.Struct, frozen=True):
    """A reassignment in `regency partitions list`."""

    topic: str
    partition: int
    before: Replicas
    after: Replicas
    adding: Replicas
    removing: Replicas


class Executed(msgspec.Struct, frozen=True):
    """What `regency partitions execute -o json` prints; `state` is of now: done, in progress or differs."""

    partitions: int
    begun: int
    rollback: str | None
    state: str


class Cancelled(msgspec.Struct, frozen=True):
    """What `regency partitions cancel -o json` prints."""

    cancelled: int
    finished_before: int


@click.group()
@cluster_options
def partitions() -> None:
    """Move partitions to other brokers: plan it, look at the plan, execute it, and go back if need be.

    \b
    Example:
      regency partitions plan --drain 3 --out drain-3.json
      regency partitions execute drain-3.json
    """


@partitions.command(short_help="Compute who shall have which partition.")
@click.option(
    "--topics",
    "topics",
    multiple=True,
    metavar="NAME,...",
    shell_complete=completed("topics_of_a_list"),
    help="Only these topics.  [default: all]",
)
@click.option(
    "--topics-to-move-json-file", "topics_file", type=FILE, help="Only the topics in this file, as Kafka's tool has it."
)
@_ids_option("--brokers", "--broker-list", "brokers", help="Brokers to have replicas.")
@_ids_option("--drain", multiple=True, help="Move everything off, dead or alive.")
@click.option("--replication-factor", "factor", type=Count(1, 32767), help="Replicas of each partition.")
@click.option("--out", type=NEW_FILE, help="Write the plan to this file.")
@click.option("--kafka-json", "kafkas", type=NEW_FILE, help="Write it as Kafka's reassignment JSON, too.")
@cluster_options
def plan(
    topics: tuple[str, ...],
    topics_file: Path | None,
    brokers: list[int],
    drain: list[int],
    factor: int | None,
    out: Path | None,
    kafkas: Path | None,
) -> None:
    """Compute who shall have which partition, and show it. Nothing moves before `execute`.

    Without --drain and --replication-factor, or with --brokers, replicas and preferred leaders are spread evenly over
    all live brokers, or those named, with as few moves as possible. --drain moves replicas off brokers and nothing
    else. No two replicas share a rack while another rack has none.

    \b
    Examples:
      regency partitions plan --out plan.json                       after a broker was added
      regency partitions plan --drain 3 --out drain-3.json          before a broker goes, or after it is gone for ever
      regency partitions plan --topics flights --brokers 1,2,4 --out plan.json
      regency partitions plan --topics flights --replication-factor 3 --out plan.json
      regency partitions plan --topics-to-move-json-file topics.json --kafka-json move.json
    """
    servers = current().bootstrap_servers()
    names = [name.strip() for each in topics for name in each.split(",")]
    if "" in names:  # an empty variable of a script must not mean all topics
        raise click.BadParameter("a name is empty; leave it out for all topics.", param_hint="--topics")
    if topics and topics_file is not None:
        raise click.UsageError("Say one of: --topics NAME,..., --topics-to-move-json-file FILE.")
    if topics_file is not None:
        try:
            names += decode_topics(str(topics_file), topics_file.read_bytes())
        except PlanRefused as error:
            raise CommandFailed(error.message, hint=error.hint) from error
    situation = look(servers)
    wish = Wish(tuple(dict.fromkeys(names)), tuple(brokers), tuple(drain), factor)
    made = make_plan(situation, wish, command=shlex.join(["regency", "partitions", "plan", *wish.words(out)]))
    _show_plan(made, situation, out)
    if out is not None:
        out.write_bytes(encode_plan(made))
        say(f"Wrote {out}. To do it: regency partitions execute {shlex.quote(str(out))}")
    if kafkas is not None:
        kafkas.write_bytes(encode_kafkas((move.partition, move.after) for move in made.moves))
        say(f"Wrote {kafkas}, for Kafka's tools.")
    if out is None and kafkas is None and made.moves:
        say("Say --out FILE to keep the plan, so that it can be executed.")


def waiting(command: F) -> F:
    """Adds --no-wait and --timeout; `waits` says whether to wait."""
    timeout = click.option(
        "--timeout", type=Seconds(0), default=600.0, show_default=True, help="Seconds to wait at most."
    )
    before = click.option("--wait", is_flag=True, hidden=True, expose_value=False)
    unless = click.option(
        "--no-wait",
        "waits",
        is_flag=True,
        callback=lambda _context, _option, unwanted: not unwanted,
        help="Do not wait until it is done: it goes on by itself.",
    )
    return before(unless(timeout(command)))


def moving_now(command: F) -> F:
    """Adds --rollback-file, --no-wait and --timeout: the options of `do_now`."""
    return click.option("--rollback-file", "rollback", type=NEW_FILE, help="Write the way back.")(waiting(command))


@partitions.command()
@click.argument("file", type=FILE)
@click.option("--rollback-file", "rollback", type=NEW_FILE, help="Where the way back is written.")
@waiting
@cluster_options
def execute(file: Path, rollback: Path | None, waits: bool, timeout: float) -> int:
    """Have the partitions of a plan moved. Before that, the plan that leads back is written: FILE.rollback.json.

    Refused (exit status 6) if the plan was edited, or replicas are not where they were when it was made. A plan that
    was executed in part goes on where it ended. Kafka's reassignment JSON is taken as it is. Exit status 5 when
    it takes longer than --timeout and goes on, 1 when it was changed meanwhile.

    \b
    Examples:
      regency partitions execute plan.json
      regency partitions execute plan.rollback.json         back again
      regency partitions execute reassignment.json                 a file of Kafka's
    """
    servers = current().bootstrap_servers()
    fitting, situation = look_fitting(servers, read_plan(file))
    moves = left_of(fitting, situation)
    back = rollback or file.with_name(f"{file.name.removesuffix('.json')}.rollback.json")
    if moves:
        write_rollback(fitting, situation, back)
        begin(servers, moves)
        conclude(f"Asked for {counted(len(moves), 'partition')} to be moved.")
    else:
        conclude("Nothing is left to begin: all of it is done or on its way.")
    verdict = wait(servers, fitting.moves, timeout) if waits else None
    if current().json:
        state = "begun" if verdict is None else verdict.state
        print_json(Executed(len(fitting.moves), len(moves), str(back) if moves else None, state))
    return _told(verdict)


@partitions.command("verify", short_help="Tell whether a plan is done.")
@click.argument("file", type=FILE)
@cluster_options
def verify_plan(file: Path) -> int:
    """Tell whether the partitions of a plan, or of Kafka's reassignment JSON, have the replicas it gives them.

    Exit status 0 if all have, 4 while some are in progress, 1 when others have other replicas and nothing changes that.

    \b
    Examples:
      regency partitions verify plan.json
      while regency partitions verify plan.json; [ $? = 4 ]; do sleep 5; done
    """
    verdict = verify(current().bootstrap_servers(), read_plan(file).moves)
    if current().json:
        print_json(verdict)
    else:
        rows = [row for row in verdict.partitions if row.state != "done"]
        if rows:
            show(rows, ["topic", "partition", "state", "wanted", "replicas", "adding", "removing"])
        click.echo(f"{verdict.state}: {verdict.done} done, {verdict.in_progress} in progress, {verdict.differ} differ")
    if verdict.waiting_for:
        say(f"Not live, but waited for: brokers {', '.join(map(str, verdict.waiting_for))}.")
    return verdict.status


@partitions.command(short_help="End reassignments under way.")
@click.argument("file", type=FILE, required=False)
@click.option("--plan", "named", type=FILE, hidden=True)
@click.option("--all", "everything", is_flag=True, help="All reassignments under way.")
@cluster_options
def cancel(file: Path | None, named: Path | None, everything: bool) -> None:
    """End reassignments under way: their partitions have the replicas of before. What is finished stays as it is.

    FILE: only what this plan, or Kafka's reassignment JSON, began.

    \b
    Examples:
      regency partitions cancel plan.json
      regency partitions cancel --all
    """
    file = file or named
    if (file is not None) == everything:
        raise click.UsageError("Say one of: FILE, --all.")
    servers = current().bootstrap_servers()
    situation = look(servers)
    wanted: list[tuple[TopicPartition, Replicas | None]] = [(each, None) for each in situation.moving]
    if file is not None:
        wanted = cancellations(read_plan(file), situation)
    refused = alter(servers, wanted)
    finished = [each for each in refused if each.error == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    if len(finished) < len(refused):
        others = [each for each in refused if each.error != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
        raise failed(others, len(wanted))
    ended = len(wanted) - len(finished)
    conclude(f"Cancelled {counted(ended, 'reassignment')}." if wanted else "Nothing is being reassigned.")
    if finished:
        conclude(f"{len(finished)} were finished before.")
    if current().json:
        print_json(Cancelled(ended, len(finished)))


@partitions.command("list")
@cluster_options
def list_ongoing() -> None:
    """List the reassignments under way.

    \b
    Example:
      regency partitions list -o json | jq length
    """
    rows = [
        OngoingRow(partition.topic, partition.partition, each.origin, each.target, each.adding, each.removing)
        for partition, each in look(current().bootstrap_servers()).moving.items()
    ]
    if rows or current().json:
        show(rows, ["topic", "partition", "before", "after", "adding", "removing"])
    else:
        conclude("Nothing is being reassigned.")


def do_now(wish: Wish, *, waits: bool, timeout: float, rollback: Path | None = None) -> int:
    """Plan and execute at once: what `regency brokers drain` and `regency topics set-rf` do."""
    servers = current().bootstrap_servers()
    situation = look(servers)
    made = make_plan(situation, wish, command="")
    _show_plan(made, situation, None)
    if rollback is not None and made.moves:
        write_rollback(made, situation, rollback)
    begin(servers, made.moves)
    if not made.moves:
        return Exit.DONE
    if not waits:
        say("It has begun; `regency partitions list` shows what is under way.")
    return _told(wait(servers, made.moves, timeout) if waits else None)


def _show_plan(made: PlanFile, situation: Situation, file: Path | None) -> None:
    told = report(made.moves, situation, sizes_of(situation.nodes, made.moves), None if file is None else str(file))
    if current().json:
        print_json(told)
    else:
        show_report(told)


def _told(verdict: Verdict | None) -> int:
    if verdict is None or verdict.status is Exit.DONE:
        return Exit.DONE
    first = next(row for row in verdict.partitions if row.state == "differs")
    conclude(
        f"{verdict.differ} partitions have other replicas than wanted: another client changed or cancelled that, for "
        f"example {first.topic}-{first.partition}, now {list(first.replicas)}."
    )
    return verdict.status
