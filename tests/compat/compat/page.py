"""The page of docs/internals about suites of others, from the reports of their last whole runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from compat.suite import ROOT, Case, Outcome

REPORTS: Final = ROOT / "tests" / "compat" / "reports"
PAGE: Final = ROOT / "docs" / "internals" / "compatibility.md"
BLOCK: Final = re.compile(r"(<!-- reports -->\n).*(<!-- end -->)", re.DOTALL)


class Report(msgspec.Struct, frozen=True):
    """What one suite found. `cannot_run` says why it found nothing."""

    suite: str
    what: str
    seconds: float
    cases: list[Case]
    cannot_run: str = ""

    def count(self, outcome: Outcome) -> int:
        """How many tests ended so."""
        return sum(case.outcome is outcome for case in self.cases)


def keep(report: Report) -> None:
    """Write it where the page is made from."""
    REPORTS.mkdir(exist_ok=True)
    (REPORTS / f"{report.suite}.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def rendered(page: str) -> str:
    """The page with its tables made again. Raises ValueError without marks."""
    reports = [msgspec.json.decode(path.read_bytes(), type=Report) for path in sorted(REPORTS.glob("*.json"))]
    lines = ["| suite | | passed | failed | left out |", "|---|---|---|---|---|"]
    for report in reports:
        numbers = (report.count(outcome) for outcome in (Outcome.PASSED, Outcome.FAILED, Outcome.LEFT_OUT))
        lines.append(f"| `{report.suite}` | {report.what} | {' | '.join(map(str, numbers))} |")
    for report in reports:
        reasons: dict[str, list[str]] = {}
        for case in report.cases:
            if case.outcome is not Outcome.PASSED:
                reasons.setdefault(f"{case.outcome.value}: {case.reason}", []).append(f"`{case.name}`")
        lines += ["", f"**{report.suite}**. Passed: {_listed(report)}."]
        lines += [f"- {', '.join(names)} {reason}" for reason, names in reasons.items()]
    made, times = BLOCK.subn(lambda match: match[1] + "\n".join(lines) + "\n" + match[2], page)
    if times != 1:
        raise ValueError(f"{PAGE.name}: one block from <!-- reports --> to <!-- end --> is expected, found {times}")
    return made


def _listed(report: Report) -> str:
    return ", ".join(f"`{case.name}`" for case in report.cases if case.outcome is Outcome.PASSED) or "nothing"


def write() -> Path:
    """Make the page again; where it is."""
    PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")
    return PAGE
