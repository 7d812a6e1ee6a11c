"""The command `regency log dump`: which file is what, and the exit status."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import click

from regency.cli.context import current, output_option, say
from regency.cli.exits import Exit
from regency.cli.log.dump.indexes import OffsetEntry, Scope, TimeEntry, dump_offset_index, dump_time_index
from regency.cli.log.dump.segment import BatchFact, Depth, RecordFact, dump_segment
from regency.cli.log.dump.sink import Damage, Empty, Gap, Passed, Sink
from regency.cli.log.dump.small_files import (
    AbortedFact,
    EpochFact,
    OffsetFact,
    ProducerFact,
    PropertyFact,
    dump_aborted,
    dump_epochs,
    dump_meta,
    dump_offsets,
    dump_partition_metadata,
    dump_snapshot,
)
from regency.kafka.logfiles import file_names as names

Dump = Callable[[Path, Sink], None]

_BY_NAME: dict[str, Dump] = {
    names.EPOCH_CHECKPOINT: dump_epochs,
    names.RECOVERY_POINTS: dump_offsets,
    names.LOG_START_OFFSETS: dump_offsets,
    names.HIGH_WATERMARKS: dump_offsets,
    "cleaner-offset-checkpoint": dump_offsets,
    names.META_PROPERTIES: dump_meta,
    names.PARTITION_METADATA: dump_partition_metadata,
}
_ASIDE = (names.DELETED, names.SWAP, names.CLEANED)
_KNOWN = f"Known are segments (.log), .index, .timeindex, .txnindex, .snapshot, {', '.join(_BY_NAME)}."

DumpedFact = (
    BatchFact
    | RecordFact
    | OffsetEntry
    | TimeEntry
    | AbortedFact
    | ProducerFact
    | EpochFact
    | OffsetFact
    | PropertyFact
    | Empty
    | Passed
    | Gap
    | Damage
)
"""A line of `regency log dump -o json`; `type` tells which it is."""


@click.command("dump", short_help="Print and check segments, indexes, snapshots and checkpoints.")
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, readable=True, path_type=Path)
)
@click.option("--deep-iteration", is_flag=True, help="Print the records of each batch too.")
@click.option("--print-data-log", is_flag=True, help="Print records with their keys and values.")
@click.option("--max-bytes", type=click.IntRange(min=0), help="Look at the first bytes of each segment only.")
@click.option("--verify-index-only", is_flag=True, help="Check indexes without printing their entries.")
@click.option("--index-sanity-check", is_flag=True, help="Only check of indexes what a broker checks at its start.")
@output_option
def dump(
    files: tuple[Path, ...],
    deep_iteration: bool,
    print_data_log: bool,
    max_bytes: int | None,
    verify_index_only: bool,
    index_sanity_check: bool,
) -> int:
    """Print what stands in files of a log directory, as kafka-dump-log does, and check it. Changes nothing.

    A directory stands for all files in it that are known. Segments are read batch by batch, with their checksums and
    their order; an index is held against its segment, which must lie beside it. It needs no cluster, and brokers may
    go on writing meanwhile: what was there at the beginning is looked at.

    Lines are those of Kafka's tool, damage goes to stderr; with -o json there is one object a line, `type` telling what
    it is, damage included. Exit status 1: damage was found, or a file is none of these.

    \b
    Examples:
      regency log dump .run/agent-1/data/flights-0/00000000000000000000.log
      regency log dump --print-data-log --max-bytes 100000 .run/agent-1/data/flights-0/*.log
      regency log dump --verify-index-only .run/agent-1/data/flights-0 > /dev/null
      regency log dump -o json .run/agent-1/data/flights-0 | jq -c 'select(.type == "damage")'
    """
    sink = Sink(json=current().json)
    scope = Scope(entries=not verify_index_only, sanity_only=index_sanity_check)
    depth = Depth(records=deep_iteration or print_data_log, contents=print_data_log, max_bytes=max_bytes)
    failed = count = 0
    for path in _expanded(files):
        count += 1
        if path.exists() and not path.is_file():  # a pipe may never end
            failed += 1
            say(f"Error: {path}: it is no regular file.")
            continue
        how = _how(path, scope, depth)
        if how is None:
            failed += 1
            say(f"Error: {path}: no file of this name is known. {_KNOWN}")
            continue
        sink.begin(path)
        try:
            how(path, sink)
        except BrokenPipeError:  # the reader of the output has what it wanted: nothing is wrong with the file
            raise
        except OSError as error:
            failed += 1
            say(f"Error: {path}: {error.strerror or error}.")
    files_word = "file" if count == 1 else "files"
    unread = f", {failed} of them not read" if failed else ""
    if sink.damages:
        say(f"{count} {files_word}{unread}, {len(sink.damaged)} of them damaged, in {sink.damages} places.")
    elif failed < count or not count:
        say(f"{count} {files_word}{unread}, no damage found.")
    return Exit.FAILED if sink.damages or failed else Exit.DONE


def _expanded(files: tuple[Path, ...]) -> Iterator[Path]:
    """The files, and what is known of the content of directories."""
    for path in files:
        if path.is_dir():
            known = [each for each in sorted(path.iterdir()) if each.is_file() and _how(each, Scope(), Depth())]
            if not known:
                say(f"{path} has no file that can be dumped; name directories of partitions (such as flights-0).")
            yield from known
        else:
            yield path


def _how(path: Path, scope: Scope, depth: Depth) -> Dump | None:
    """What reads a file of this name; None where nothing does."""
    if path.name in _BY_NAME:
        return _BY_NAME[path.name]
    name = path.name
    for aside in _ASIDE:
        name = name.removesuffix(aside)
    parsed = names.parse_offset_file(name)
    match parsed[1] if parsed else None:
        case names.LOG:
            return lambda file, sink: dump_segment(file, sink, depth)
        case names.INDEX:
            return lambda file, sink: dump_offset_index(file, sink, scope)
        case names.TIME_INDEX:
            return lambda file, sink: dump_time_index(file, sink, scope)
        case names.TXN_INDEX:
            return dump_aborted
        case names.SNAPSHOT:
            return dump_snapshot
    return None
