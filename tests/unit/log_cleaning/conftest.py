"""A log to clean."""

from __future__ import annotations

from pathlib import Path

import pytest
from cleaned_logs import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
