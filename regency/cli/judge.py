"""`regency judge`: the history judge on files of this machine."""

from __future__ import annotations

from pathlib import Path

import click

from regency.cli.context import output_option
from regency.cli.exits import Exit
from regency.cli.judging import Rules, judging_options, tell_verdict
from regency.history.judge_pieces import judge_piece
from regency.history.operations import HistoryMalformed, Operation, decode_operations


@click.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@judging_options
@output_option
def judge(files: tuple[Path, ...], rules: Rules) -> Exit:
    """Judge a history of what producers were told and consumers saw: does it fit one log per partition?

    The files together are one history: lines of JSON, an operation each, in any order (docs/pipeline-judge.md has the
    operations). All of it is kept in memory; `regency pipeline judge` gives the same verdict on larger ones.

    Exit status 0: clean; 1: something was found that is not allowed, or the files are no history.

    \b
    Examples:
      regency judge history.jsonl
      regency judge history.jsonl --allow retry-duplicate --allow retry-reordered
      regency judge history.jsonl --producers producers.json -o json | jq .counts
    """
    operations: list[Operation] = []
    for file in files:
        with file.open("rb") as lines:
            try:
                operations += decode_operations(lines)
            except HistoryMalformed as error:
                raise HistoryMalformed(f"{file}: {error}") from error
    return tell_verdict(judge_piece(operations, allow=rules.allow, producers=rules.producers, most=rules.most))
