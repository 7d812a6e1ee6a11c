"""Seeds that once found a bug of production code. docs/internals/simulation.md says what they found."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from simulation.run import run
from simulation.shape import shape_of

FOUND = [("quick", seed) for seed in (17, 36)] + [
    ("deep", seed)
    for seed in (2, 9, 21, 26, 31, 32, 36, 53, 71, 80, 109, 128, 293, 295, 1147, 1786, 2081, 3774, 12068, 101309)
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(disabled)


@pytest.mark.sim
@pytest.mark.parametrize(("profile", "seed"), FOUND)
def test_what_once_failed_passes(profile: str, seed: int) -> None:
    result = run(seed, shape_of(profile, seed))
    assert result.failure is None, f"{result.failure}; see ./dev sim --profile {profile} --seed {seed} --trace"
