"""Fixtures for tests that kill processes which work on log directories."""

from __future__ import annotations

from pathlib import Path

import pytest
from killing.checks import Kills
from killing.scenarios import SCENARIOS


@pytest.fixture
def kills(tmp_path: Path) -> Kills:
    return Kills(tmp_path)


@pytest.fixture(scope="session")
def passed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """How often each scenario passes each crash point, by point."""
    runs = Kills(tmp_path_factory.mktemp("passed"))
    found: dict[str, dict[str, int]] = {}
    for scenario in SCENARIOS:
        ledger = runs.run(scenario)
        for point, times in ledger.passed.items():
            found.setdefault(point, {})[scenario] = times
        runs.check(ledger)
    return found
