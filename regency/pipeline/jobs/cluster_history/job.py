"""Runs the job: reads, computes the tables, writes them and the report, and publishes all of it at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql import functions as f

from regency.history.records import NumberedTwice
from regency.model.errors import RegencyError
from regency.pipeline.files.history_files import Found, by_names, damaged, escaped, find_files, unread
from regency.pipeline.files.publishing import Staging, published
from regency.pipeline.jobs.cluster_history import controllers, reading, report, states
from regency.pipeline.jobs.cluster_history.packed import STAGED
from regency.pipeline.jobs.cluster_history.summary import Problem, Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUMMARY = "cluster-history.json"
REPORT = "report.html"
_RAW, _TOLD = "lines", "told"
"""Parts that are not published: packed rows."""
_AT_ONCE = 2
"""Tables in the making. Their tasks share all cores, whatever their number."""
Keep = Callable[[str, "DataFrame"], "DataFrame"]


class NoHistory(RegencyError):
    """There are no decisions to tell of."""

    code = "no_history"


def cluster_history(
    session: SparkSession,
    *,
    paths: Sequence[str] = (),
    agents: Mapping[int, str] | None = None,
    to: str,
    overwrite: bool = False,
    top: int = 20,
) -> Summary:
    """Tables and report of the history in the files and of the agents, at `to`.

    `agents`: addresses of controller processes by broker. `top`: rows of each list of the report. Raises NoHistory,
    FilesUnreadable, PlaceTaken, and what Spark raises.
    """
    with published(session, to, mark=SUMMARY, overwrite=overwrite) as staging:
        asked_ms = int(time.time() * 1000)
        if not paths and not agents:
            raise NoHistory("There are neither files nor agents to read decisions from.")
        keep = _keeper(session, staging)
        raw = _read(session, by_names(find_files(session, paths)), agents, keep)
        read = {"decisions": lambda: reading.decisions(raw), "origins": lambda: reading.origins(raw)}
        decisions, origins = _at_once(keep, read).values()
        facts = controllers.facts(decisions)
        problems = [Problem(each.origin, each.malformed, _why(each.problem, each.malformed)) for each in _bad(origins)]
        problems += [_doubt(each) for each in (reading.doubtful(decisions) if facts.doubtful else ())]
        if not facts.many:
            raise NoHistory(
                f"No decisions were found{''.join(f'; {each.origin}: {each.why}' for each in problems)}.",
                hint="They are in the directory regency.history.dir of each broker, in files *.jsonl.",
            )
        end_ms = max(facts.end, asked_ms) if agents else facts.end
        tables = _tables(decisions, facts, end_ms, keep)
        if agents and not paths:
            problems += not_asked(tables["brokers"], agents)
        totals = _totals(tables)
        [all_of_it] = origins.agg(
            f.count("*").alias("many"), f.sum("decisions").alias("all"), f.sum("malformed").alias("bad")
        ).collect()
        summary = Summary(
            tables=to,
            report=f"{to.rstrip('/')}/{REPORT}",
            begin_ms=facts.begin,
            end_ms=end_ms,
            origins=all_of_it.many,
            decisions=facts.many,
            duplicates=all_of_it.all - facts.many,
            malformed=all_of_it.bad,
            problems=problems,
            **totals,
        )
        staging.write(SUMMARY, msgspec.json.format(msgspec.json.encode(summary), indent=2))
        staging.write(REPORT, report.page(summary, tables, top).encode())
        staging.delete(_RAW)
        staging.delete(_TOLD)
    return summary


def _read(session: SparkSession, found: Found, agents: Mapping[int, str] | None, keep: Keep) -> DataFrame:
    """All lines, parsed. Where a file cannot be read to its end, all are read again, and that one as far as it goes."""

    def parsed(wrong: Mapping[str, str]) -> DataFrame:
        lines = reading.read_files(session, found, wrong)
        return keep(_RAW, reading.parsed(lines.unionByName(reading.read_agents(session, agents)) if agents else lines))

    try:
        return parsed({})
    except (PySparkException, Py4JJavaError) as error:
        wrong = dict(damaged(session, found.files)) if unread(error) else {}
        if not wrong:
            raise
    return parsed(wrong)


def _tables(decisions: DataFrame, facts: controllers.Facts, end_ms: int, keep: Keep) -> dict[str, DataFrame]:
    told = keep(_TOLD, states.told(decisions, facts.noticed, end_ms, facts.topic_notes))
    tables = _at_once(
        keep,
        {name: partial(states.table, told, name) for name in states.TABLES}
        | {
            "failovers": lambda: controllers.failovers(decisions),
            "failover_phases": lambda: controllers.phases(decisions),
        },
    )
    known, without, out = (tables[name] for name in ("states", "leaderless", "isr_absences"))
    return tables | _at_once(
        keep,
        {
            "brokers": lambda: controllers.brokers(out, without, decisions, controllers.with_outcomes(known)),
            "elections": lambda: controllers.elections(known),
        },
    )


def _at_once(keep: Keep, tables: Mapping[str, Callable[[], DataFrame]]) -> dict[str, DataFrame]:
    """Tables that need none of each other: one is planned, which takes small ones longest, while another is written."""
    pool = ThreadPoolExecutor(_AT_ONCE, "tables")
    try:
        kept = {name: pool.submit(lambda each: keep(each, tables[each]()), name) for name in tables}
        return {name: each.result() for name, each in kept.items()}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _totals(tables: Mapping[str, DataFrame]) -> dict[str, int]:
    [without] = (
        tables["leaderless"]
        .agg(f.sum("ms").alias("ms"), f.count("*").alias("many"), f.count_if("open").alias("open"))
        .collect()
    )
    [chosen] = (
        tables["elections"]
        .agg(f.sum("elections").alias("all"), f.sum(f.when(f.col("unclean"), f.col("elections"))).alias("unclean"))
        .collect()
    )
    firsts = tables["states"].where((f.col("life") == 1) & (f.col("place") == 1))
    return {
        "partitions": firsts.count(),
        "leaderless_ms": without.ms or 0,
        "leaderless_intervals": without.many,
        "leaderless_now": without.open,
        "failovers": tables["failovers"].where(f.col("won_ms").isNotNull()).count(),
        "elections": chosen.all or 0,
        "unclean_elections": chosen.unclean or 0,
        "isr_absences": tables["isr_absences"].count(),
    }


def _keeper(session: SparkSession, staging: Staging) -> Keep:
    """Writes a table once, and reads from there whatever is computed of it."""

    def keep(name: str, table: DataFrame) -> DataFrame:
        path = staging.path(name)
        writer = table.write.mode("overwrite")  # what an attempt left that came upon a file it could not read
        (writer.options(**STAGED) if name in (_RAW, _TOLD) else writer).parquet(path)
        return session.read.schema(table.schema).parquet(escaped(path))

    return keep


def not_asked(brokers: DataFrame, agents: Mapping[int, str]) -> list[Problem]:
    """Brokers that the history names and that are not among those asked. There are as many rows as brokers."""
    known = [row.broker for row in brokers.where(~f.col("forgotten")).select("broker").orderBy("broker").collect()]
    why = "not asked, because it is not live: its decisions are missing, unless others have copies of its files"
    return [Problem(f"broker {broker}", 0, why) for broker in known if broker not in agents]


def _doubt(process: Row) -> Problem:
    told = NumberedTwice(process.role, process.source, process.times, *process["first"])
    return Problem(f"{told.role} {told.source}", 0, told.why)


def _bad(origins: DataFrame) -> list[Row]:
    return origins.where(f.col("problem").isNotNull() | (f.col("malformed") > 0)).orderBy("origin").collect()


def _why(problem: str | None, malformed: int) -> str:
    many = f"{malformed} lines are no decisions" if malformed > 1 else "1 line is no decision" if malformed else ""
    return "; ".join(each for each in (problem or "", many) if each)
