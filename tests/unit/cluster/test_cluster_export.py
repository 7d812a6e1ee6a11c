"""`from regency import Cluster` works, and costs nothing until it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import regency

ROOT = Path(__file__).resolve().parents[3]


def test_cluster_is_exported() -> None:
    from regency.cluster.cluster import Cluster

    assert regency.Cluster is Cluster
    assert set(dir(regency)) == set(regency.__all__)
    assert {"Cluster", "ClusterTimeout", "UnknownBroker", "SettingsInvalid"} <= set(dir(regency))
    stub = (ROOT / "regency" / "__init__.pyi").read_text()
    for name in regency.__all__:
        assert getattr(regency, name) is not None
        assert f" as {name}\n" in stub or f"{name}: str" in stub, "type checkers know it too"


def test_import_of_the_package_loads_nothing_else() -> None:
    program = "import regency, sys; print([name for name in sys.modules if name.startswith('regency.')])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "[]\n"


def test_other_names_are_refused_as_usual() -> None:
    with pytest.raises(AttributeError, match="module 'regency' has no attribute 'Clutser'"):
        _ = regency.Clutser


def test_version_is_that_of_the_distribution() -> None:
    declared = [line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version = ")]
    assert declared == [f'version = "{regency.__version__}"']
