"""`regency judge`: the history judge on files of this machine."""

from __future__ import annotations

from pathlib import Path

import click

from regency.cli.context import output_option, say
from regency.cli.data.judging import Rules, judging_options, tell_verdict
from regency.cli.exits import Exit
from regency.judge.files import file_lines, find_files, nothing_read, refuse_unread, told_others
from regency.judge.operations import HistoryMalformed, Operation, decode_operations
from regency.judge.pieces import judge_piece


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
