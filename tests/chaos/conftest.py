"""`--seed 7` or `--seed 7-20` chooses which random faults are made, `--rounds` how many."""

from __future__ import annotations

import pytest

DEFAULT_SEEDS = (1, 2)
DEFAULT_ROUNDS = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", default="", help="seeds of random faults: 7, or 7-20")
    parser.addoption("--rounds", default=DEFAULT_ROUNDS, type=int, help="how many rounds of faults for each seed")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first, _, last = metafunc.config.getoption("--seed", default="").partition("-")
        chosen = range(int(first), int(last or first) + 1) if first else DEFAULT_SEEDS
        metafunc.parametrize("seed", chosen)


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--rounds", default=DEFAULT_ROUNDS)
