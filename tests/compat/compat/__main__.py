"""`./dev compat`: arguments, a cluster for each suite, the tables, the exit status."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence

import msgspec

from compat.page import Report, keep, write
from compat.suite import OUT, CannotRun, Case, Outcome, Suite, Target, say
from compat.suites import SUITES
from regency import Cluster

PASSED, FAILED, CANNOT_RUN = 0, 1, 3


def main() -> int:
    """Run the suites that are named; the exit status."""
    options = _arguments()
    reports = [_run(SUITES[name], options) for name in options.names]
    if options.output == "json":
        print(msgspec.json.format(msgspec.json.encode(reports), indent=2).decode())
    else:
        for report in reports:
            _print(report)
    if options.keep:
        for report in reports:
            if not report.cannot_run:
                keep(report)
        say(f"{write()} is made again")
    failed = sum(report.count(Outcome.FAILED) for report in reports)
    passed = sum(report.count(Outcome.PASSED) for report in reports)
    left_out = sum(report.count(Outcome.LEFT_OUT) for report in reports)
    print(f"compat: {passed} passed, {failed} failed, {left_out} left out", file=sys.stderr)
    if failed:
        return FAILED
    missing = any(report.cannot_run for report in reports)
    return CANNOT_RUN if missing and not options.lenient else PASSED


def _arguments() -> argparse.Namespace:
    lines = [f"  {suite.name:<14} {suite.what}" for suite in SUITES.values()]
    parser = argparse.ArgumentParser(
        prog="./dev compat",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(
            [
                "suites:",
                *lines,
                "",
                "exit status: 0 all passed, 1 a test failed, 2 wrong use, 3 a suite cannot be fetched or built here",
            ]
        ),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="suites; all where none is named")
    parser.add_argument("--short", action="store_true", help="the short form, for every change")
    parser.add_argument("--keep", action="store_true", help="write reports, and the page of docs/internals from them")
    parser.add_argument("--lenient", action="store_true", help="a suite that cannot be had is said, and is no failure")
    parser.add_argument("--ready", action="store_true", help="build nothing that takes minutes")
    parser.add_argument("--bootstrap-server", metavar="ADDRESS", help="test what runs there, such as Apache Kafka")
    parser.add_argument("--zookeeper", metavar="ADDRESS", default="", help="its ZooKeeper, where a suite asks for it")
    parser.add_argument("--brokers", type=int, default=1, metavar="N", help="how many brokers run there (default: 1)")
    parser.add_argument("--output", "-o", choices=("text", "json"), default="text", help="form of the report")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in SUITES]
    if unknown:
        parser.error(f"there is no suite {unknown[0]}; there are {', '.join(SUITES)}")
    options.names = options.names or list(SUITES)
    return options


def _run(suite: Suite, options: argparse.Namespace) -> Report:
    suite.log.unlink(missing_ok=True)
    began = time.monotonic()
    say(f"{suite.name}: {suite.what}")
    cases: Sequence[Case] = []
    why = ""
    try:
        suite.refuse_without_programs()
        if options.ready:
            suite.refuse_unless_built()
        if options.bootstrap_server:
            cases = suite.run(
                suite, Target(options.bootstrap_server, options.zookeeper, options.brokers, options.short)
            )
        else:
            cases = _on_a_cluster(suite, short=options.short)
    except CannotRun as error:
        why = str(error)
        say(f"{suite.name} CANNOT RUN: {why}")
    return Report(suite.name, suite.what, round(time.monotonic() - began, 1), [*cases, *suite.skipped()], why)


def _on_a_cluster(suite: Suite, *, short: bool) -> list[Case]:
    """On a cluster of its own, which is kept in tests/out where a test failed."""
    if suite.brokers == 0:
        return suite.run(suite, Target("", "", 0, short=short))
    directory = OUT / f"{suite.name}-cluster"
    shutil.rmtree(directory, ignore_errors=True)
    with Cluster(brokers=suite.brokers, settings=dict(suite.settings), directory=directory) as cluster:
        cases = suite.run(
            suite, Target(cluster.bootstrap_servers, cluster.zookeeper_connect, suite.brokers, short=short)
        )
    if not any(case.outcome is Outcome.FAILED for case in cases):
        shutil.rmtree(directory, ignore_errors=True)
    return cases


def _print(report: Report) -> None:
    print(f"\n{report.suite}: {report.what}")
    if report.cannot_run:
        print(f"  CANNOT RUN: {report.cannot_run}")
    for case in report.cases:
        if case.outcome is not Outcome.PASSED:
            print(f"  {case.outcome.value:<8} {case.name}: {case.reason}")
    counts = ", ".join(f"{report.count(outcome)} {outcome.value}" for outcome in Outcome)
    print(f"  {counts} in {report.seconds} s")


if __name__ == "__main__":
    sys.exit(main())
