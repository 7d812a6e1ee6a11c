"""`regency judge`: the history judge on files of this machine; its options and words are `pipeline judge`'s too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from regency.cli.context import FILE, conclude, current, output_option, say
from regency.cli.exits import Exit
from regency.judge.files import file_lines, find_files, nothing_read, refuse_unread, told_others
from regency.judge.findings import DEFAULT_MOST, Verdict
from regency.judge.operations import ALL, HistoryMalformed, Operation, decode_operations
from regency.judge.table import Anomaly, Configuration
from regency.judge.verdict import Producers, judge_piece


class Rules(msgspec.Struct, frozen=True):
    """By what a history is judged: what is allowed everywhere, or who wrote it; and how many findings are kept."""

    allow: frozenset[Anomaly]
    producers: Producers | None
    most: int


class _Producer(Configuration, frozen=True, kw_only=True, forbid_unknown_fields=True):
    acks: Literal[0, 1, -1] = ALL


_decoder = msgspec.json.Decoder(list[_Producer] | dict[str, list[_Producer]])


def judging_options(command: Callable[..., object]) -> Callable[..., object]:
    """Adds --allow, --producers and --findings, given to the command as `rules`."""

    @functools.wraps(command)
    def with_rules(
        *arguments: Any, allow: tuple[str, ...], producers: Path | None, findings: int, **named: Any
    ) -> object:
        if allow and producers is not None:
            raise click.UsageError("--allow and --producers exclude each other: who writes decides what is allowed.")
        decoded = None if producers is None else _decoded(producers)
        return command(*arguments, rules=Rules(frozenset(map(Anomaly, allow)), decoded, findings), **named)

    allow_option = click.option(
        "--allow",
        type=click.Choice([each.value for each in Anomaly if each is not Anomaly.UNJUDGED]),
        metavar="ANOMALY",
        multiple=True,
        help="Do not object to this one; repeatable.  [default: object to all]",
    )
    producers_option = click.option(
        "--producers",
        type=FILE,
        help="JSON file with the settings of the producers: allow what these, and what befell the cluster, allow.",
    )
    findings_option = click.option(
        "--findings",
        type=click.IntRange(0),
        default=DEFAULT_MOST,
        show_default=True,
        help="Findings of each kind to tell; all are counted.",
    )
    return allow_option(producers_option(findings_option(with_rules)))


def tell_verdict(verdict: Verdict) -> Exit:
    """Print a verdict; the exit status that it means."""
    if current().json:
        click.echo(msgspec.json.format(verdict.to_json(), indent=2).decode())
    else:
        summary, *findings = verdict.summary().splitlines()
        for finding in findings:
            click.echo(finding)
        conclude(f"The history is {summary}.")
    return Exit.DONE if verdict.clean else Exit.FAILED


def _decoded(path: Path) -> Producers:
    try:
        decoded = _decoder.decode(path.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(
            f'{path}: {error}. Say for example [{{"acks": -1, "idempotent": true}}], or {{"TOPIC": [...]}}.',
            param_hint="--producers",
        ) from error
    if isinstance(decoded, list):
        return _configurations(decoded)
    return {topic: _configurations(own) for topic, own in decoded.items()}


def _configurations(producers: list[_Producer]) -> tuple[Configuration, ...]:
    return tuple(Configuration(**msgspec.structs.asdict(each)) for each in producers)


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(exists=True, path_type=Path))
@judging_options
@output_option
def judge(paths: tuple[Path, ...], rules: Rules) -> Exit:
    """Judge a history of what producers were told and consumers saw: does it fit one log per partition?

    PATHs are files, also compressed (*.gz), and directories, of which all *.jsonl and *.jsonl.gz below are read.
    Together they are one history: lines of JSON, an operation each, in any order (docs/use/judge.md has the
    operations). All of it is kept in memory; `regency pipeline judge` gives the same verdict on larger ones.

    Exit status 0: clean; 1: something was found that is not allowed, or the files are no history, or an empty one.

    \b
    Examples:
      regency judge history.jsonl
      regency judge history.jsonl --allow retry-duplicate --allow retry-reordered
      regency judge history.jsonl --producers producers.json -o json | jq .counts
    """
    found = find_files(paths)
    if found.others:
        say(told_others(found.others))
    refuse_unread(found.unread)
    operations: list[Operation] = []
    for file in found.files:
        try:
            operations += decode_operations(file_lines(file))
        except HistoryMalformed as error:
            raise HistoryMalformed(f"{file}: {error.message}", hint=error.hint) from error
    if not operations:
        raise nothing_read(paths)
    return tell_verdict(judge_piece(operations, allow=rules.allow, producers=rules.producers, most=rules.most))
