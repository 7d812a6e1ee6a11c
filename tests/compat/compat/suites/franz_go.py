"""franz-go's own tests (`pkg/kgo`): chains of consumer groups with every balancer, whose members come and go."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Final

from compat.suite import CannotRun, Case, Outcome, Suite, Target, done

MODULE: Final = "github.com/twmb/franz-go"
VERSION: Final = "v1.22.0"
TESTS: Final = "|".join(
    ("TestGroup", "TestIssue", "TestConsume", "TestPing", "TestPause", "TestPooling", "TestAddRemove", "TestDirect")
)
RECORDS: Final = 500_000
OUTCOMES: Final = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skip": Outcome.LEFT_OUT}
SHORT_RECORDS: Final = 20_000
SHORT_TESTS: Final = "TestGroupETL|TestGroupSimple|TestPing|TestAddRemove"


def _fetch(suite: Suite) -> Path:
    """A copy of the module that can be written to: go's own cache cannot."""
    source = suite.directory / "source"

    def make() -> None:
        (suite.directory / "go.mod").write_text("module compat\n\ngo 1.21\n")
        status, said = suite.call(["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"], within_s=300)
        if status != 0:
            raise CannotRun(f"go cannot fetch {MODULE} {VERSION}, see {suite.log}")
        fetched = json.loads(said[said.index("{") :])["Dir"]
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(fetched, source, copy_function=shutil.copyfile)

    done(suite.directory / f"fetched-{VERSION}", make)
    return source


def run(suite: Suite, target: Target) -> list[Case]:
    """Run the tests by `go test -json`; its events say how each ended."""
    source = _fetch(suite)
    binary = suite.directory / "kgo.test"
    build = ["go", "test", "-c", "-o", str(binary), "./pkg/kgo/"]
    suite.call(build, cwd=source, within_s=900, must=True)
    status, said = suite.call(
        [
            "go",
            "tool",
            "test2json",
            "-t",
            str(binary),
            "-test.v=test2json",
            "-test.timeout",
            "20m",
            "-test.run",
            SHORT_TESTS if target.short else TESTS,
        ],
        cwd=source / "pkg" / "kgo",
        env={
            "KGO_SEEDS": target.bootstrap_servers,
            "KGO_TEST_RF": str(min(3, target.brokers)),
            "KGO_TEST_RECORDS": str(SHORT_RECORDS if target.short else RECORDS),
            **({"KGO_TEST_MAX_TOPIC_PARTS": "7"} if target.short else {}),
        },
        within_s=1300,
    )
    cases = _cases(said)
    if status != 0 and not any(case.outcome is Outcome.FAILED for case in cases):
        cases.append(Case("go test", Outcome.FAILED, reason=f"ended with {status}, see {suite.log}"))
    return cases


def _cases(said: str) -> list[Case]:
    """The outcomes of the events of `go tool test2json`, each with the last line that its test printed."""
    printed: dict[str, str] = {}
    cases: list[Case] = []
    for line in said.splitlines():
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        name, action = event.get("Test"), event["Action"]
        if name is None:
            continue
        if action == "output" and re.match(r"\s+\w+_test\.go:\d+: ", event["Output"]):
            printed[name] = event["Output"].strip()[:200]
        elif action in OUTCOMES:
            outcome = OUTCOMES[action]
            reason = "" if outcome is Outcome.PASSED else printed.get(name, "the suite gives no reason")
            cases.append(Case(name, outcome, event.get("Elapsed", 0.0), reason))
    return cases


SUITE: Final = Suite(
    name="franz-go",
    what=f"{MODULE} {VERSION}, pkg/kgo: groups of every balancer, regular expressions, pausing",
    programs=("go",),
    run=run,
    built="kgo.test",
    settings={"group.initial.rebalance.delay.ms": 0, "auto.create.topics.enable": "false"},
    left_out={"TestTxnEtl": "transactions are not offered"},
)
