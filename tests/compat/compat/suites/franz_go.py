"""franz-go's own tests (`pkg/kgo`): chains of consumer groups with every balancer, whose members come and go."""

from __future__ import annotations

import json
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
        [str(binary), "-test.v", "-test.timeout", "20m", "-test.run", SHORT_TESTS if target.short else TESTS],
        cwd=source / "pkg" / "kgo",
        env={
            "KGO_SEEDS": target.bootstrap_servers,
            "KGO_TEST_RF": str(min(3, target.brokers)),
            "KGO_TEST_RECORDS": str(SHORT_RECORDS if target.short else RECORDS),
            **({"KGO_TEST_MAX_TOPIC_PARTS": "7"} if target.short else {}),
        },
        within_s=1300,
    )
    cases = [case for line in said.splitlines() if (case := _case(line, said)) is not None]
    if status != 0 and not any(case.outcome is Outcome.FAILED for case in cases):
        cases.append(Case("go test", Outcome.FAILED, reason=f"ended with {status}, see {suite.log}"))
    return cases


def _case(line: str, said: str) -> Case | None:
    words = line.split()
    if len(words) < 4 or words[0] != "---":
        return None
    kind, name, took = words[1].rstrip(":"), words[2], words[3].strip("()s")
    outcome = {"PASS": Outcome.PASSED, "FAIL": Outcome.FAILED, "SKIP": Outcome.LEFT_OUT}.get(kind)
    if outcome is None:
        return None
    reason = ""
    if outcome is not Outcome.PASSED:
        after = said[said.index(line) + len(line) :].strip().splitlines()
        before = said[: said.index(line)].strip().splitlines()
        near = next((text for text in (*after[:1], *reversed(before[-3:])) if "_test.go:" in text), "")
        reason = near.strip()[:200] or "skipped by the suite itself"
    return Case(name, outcome, float(took), reason)


SUITE: Final = Suite(
    name="franz-go",
    what=f"{MODULE} {VERSION}, pkg/kgo: groups of every balancer, regular expressions, pausing",
    programs=("go",),
    run=run,
    settings={"group.initial.rebalance.delay.ms": 0, "auto.create.topics.enable": "false"},
    left_out={"TestTxnEtl": "transactions are not offered"},
)
