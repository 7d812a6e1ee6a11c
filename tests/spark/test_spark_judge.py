"""The judge on Spark: the verdict of the local one, on sound, broken and real histories."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from correct_log import (
    ACTIONS,
    deny_one,
    exchange_two,
    forge_one,
    forget_a_poll,
    history_of,
    long_run,
    lose_the_last,
    write_twice,
)

from regency.cluster.cluster import Cluster
from regency.judge.findings import Verdict
from regency.judge.operations import (
    Drained,
    HistoryMalformed,
    LeaderChanged,
    Operation,
    Outcome,
    Poll,
    Recreated,
    Send,
    decode_operations,
    encode_operations,
)
from regency.judge.table import Anomaly, Configuration
from regency.judge.verdict import judge_piece
from regency.pipeline.files.history_files import HIDDEN, FilesUnreadable, damaged, find_files, text_of
from regency.pipeline.jobs.judge import judge_files, readable


def judge_history(spark: Any, paths: list[str], **options: Any) -> Verdict:
    """The verdict on files found by paths."""
    return judge_files(spark, paths, readable(find_files(spark, paths)), **options)


PLAIN = Configuration(idempotent=False, acks=1, in_flight=1)
BREAKS = (lose_the_last, write_twice, exchange_two, forge_one, forget_a_poll, deny_one)


def topic_of(name: str, operations: list[Operation]) -> list[Operation]:
    """The same in a topic of its own; the history as a whole says when it is over."""
    return [msgspec.structs.replace(each, topic=name) for each in operations if not isinstance(each, Drained)]


def many_histories() -> list[Operation]:
    """Sound ones, broken ones, torn ones, topics that are created again; consumers have the same names everywhere."""
    choose = random.Random(7)
    found: list[Operation] = [Drained(150)]
    for number in range(60):
        steps = [(choose.choice(ACTIONS), choose.randrange(256)) for _ in range(choose.randrange(200))]
        own = topic_of(f"random-{number}", history_of(Configuration() if number % 2 else PLAIN, steps))
        torn = choose.sample(own, len(own) // 10) if number % 3 == 0 else []
        found += [each for each in own if each not in torn or isinstance(each, Recreated)]
    for number, breaks in enumerate(BREAKS):
        found += topic_of(f"broken-{number}", breaks(long_run(number), choose))
    choose.shuffle(found)
    return found


def in_files(directory: Path, operations: list[Operation], files: int) -> list[str]:
    """Some in directories of hidden names, one compressed, with a byte order mark where others have none."""
    for number in range(files):
        lines = b"\xef\xbb\xbf" * (number % 2) + encode_operations(operations[number::files]) + b"\n  \n\t\r\n"
        own = directory / ("", ".run", "_old/[1]")[number % 3]
        own.mkdir(parents=True, exist_ok=True)
        if number == 4:
            (own / f"{number}.jsonl.gz").write_bytes(gzip.compress(lines))
        else:
            (own / f"{number}.jsonl").write_bytes(lines)
    return [str(directory)]


def test_the_verdict_on_many_histories_is_that_of_the_local_judge(spark: Any, tmp_path: Path) -> None:
    operations = many_histories()
    paths = in_files(tmp_path, operations, 5)
    local = judge_piece(operations, most=4)
    assert len(local.counts) > 8 and local.unplaced > 0
    assert judge_history(spark, paths, most=4) == local
    producers = (Configuration(), PLAIN)
    allowed = judge_piece(operations, producers=producers)
    assert allowed.tolerated and allowed.counts != local.counts
    assert judge_history(spark, paths, producers=producers) == allowed


def test_a_history_that_claims_nothing_is_judged_so(spark: Any, tmp_path: Path) -> None:
    operations = [each for each in many_histories() if isinstance(each, Send | Poll | LeaderChanged)]
    local = judge_piece(operations)
    assert Anomaly.UNJUDGED not in local.counts
    assert judge_history(spark, in_files(tmp_path, operations, 2)) == local


def test_what_spark_would_leave_out_is_refused_or_found_by_name(spark: Any, tmp_path: Path) -> None:
    for name in ("d/_hidden.jsonl", "d/.run/a.jsonl", "d/.run/.empty.jsonl", "d/b.jsonl.bak", "[c].jsonl", "x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("" if "empty" in name else " \n")
    found = find_files(spark, [str(tmp_path / each) for each in ("d", "[c].jsonl", "?", "d/.run/a.jsonl")])
    places = [[each.removeprefix(f"file:{tmp_path}/") for each in names] for names in found]
    assert set(found.unread.values()) == {HIDDEN}
    assert places == [["d/.run/a.jsonl", "[c].jsonl", "x"], ["d/_hidden.jsonl"], ["d/b.jsonl.bak"]]
    with pytest.raises(FilesUnreadable, match=r"_hidden\.jsonl would not be read"):
        judge_history(spark, [str(tmp_path)])
    with pytest.raises(FilesUnreadable, match="There is no "):
        judge_history(spark, [str(tmp_path / "nothing*")])
    with pytest.raises(FilesUnreadable, match="Spark reads 1 of 2 files"):
        text_of(spark, [found.files[0], next(iter(found.unread))])
    for files in ([], found.files):
        with pytest.raises(HistoryMalformed, match="d holds no operations: there is nothing to judge"):
            judge_files(spark, ["d"], files)


def test_a_torn_file_is_an_error_that_names_it_and_says_why(spark: Any, tmp_path: Path) -> None:
    good, torn = tmp_path / "good.jsonl.gz", tmp_path / "torn [1].jsonl.gz"
    packed = gzip.compress(encode_operations(long_run(1)))
    good.write_bytes(packed)
    torn.write_bytes(packed[:-20])
    with pytest.raises(HistoryMalformed, match=r"torn \[1\]\.jsonl\.gz: it is cut off"):
        judge_history(spark, [str(tmp_path)])
    torn.write_bytes(b"hello, no gzip at all\n")
    wrong = dict(damaged(spark, [str(good), str(torn), "no.jsonl"]))
    assert list(wrong) == [str(torn), "no.jsonl"] and "it cannot be read: File no.jsonl" in wrong["no.jsonl"]
    assert wrong[str(torn)].startswith("it is no gzip file, or damaged (")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            b'{"op":"send","client":"p","topic":"t","partition":3',
            r"torn\.jsonl: Input data was truncated.*The line begins: ",
        ),
        (b'{"op":"poll","client":"\xff","topic":"t","partition":3}', r"torn\.jsonl: .*The line begins: .*\\xff"),
        (
            b'{"op":"poll","client":"c","session":0,"topic":"t","partition":3,"invoked_ms":0}',
            r"t-3: .*The line begins: ",
        ),
    ],
)
def test_a_line_that_is_no_operation_is_an_error_that_names_it(
    spark: Any, tmp_path: Path, line: bytes, why: str
) -> None:
    (tmp_path / "torn.jsonl").write_bytes(encode_operations(long_run(1)) + line)
    with pytest.raises(HistoryMalformed, match=why):
        judge_history(spark, [str(tmp_path / "torn.jsonl")])


def test_a_real_load_while_leaders_die_is_clean_and_a_forged_one_is_not(
    spark: Any, cluster: Cluster, tmp_path: Path, eventually: Any
) -> None:
    file = tmp_path / "load.jsonl"
    words = ["load", "judged", "--rate", "400", "--seconds", "6", "--size", "40", "--history", str(file)]
    command = [sys.executable, "-m", "regency", *words, "--bootstrap-server", cluster.bootstrap_servers]
    with subprocess.Popen([*command, "-o", "json"], stdout=subprocess.PIPE, text=True) as running:
        eventually(lambda: file.exists() and file.stat().st_size > 0, within=30)
        cluster.kill(cluster.controller_id())
        told, _ = running.communicate(timeout=90)
        assert running.returncode == 0
    operations = decode_operations(file.read_bytes().splitlines())
    delivered = [each for each in operations if isinstance(each, Send) and each.outcome is Outcome.ACKNOWLEDGED]
    assert len(delivered) == json.loads(told)["delivered"] > 1000
    librdkafka = Configuration(sees_epoch_bumps=False)
    local = judge_piece(operations, producers=librdkafka)
    assert local.clean, local.summary()
    assert local.polls > 10 and local.records_read >= 2 * len(delivered)
    assert judge_history(spark, [str(file)], producers=librdkafka) == local
    lost = max(delivered, key=lambda send: send.offset)
    forged = [msgspec.structs.replace(each, offset=each.offset + 1) if each is lost else each for each in operations]
    (tmp_path / "forged").mkdir()
    verdict = judge_history(spark, in_files(tmp_path / "forged", forged, 2), producers=librdkafka)
    assert verdict == judge_piece(forged, producers=librdkafka)
    assert Anomaly.MISPLACED_WRITE in verdict.counts
