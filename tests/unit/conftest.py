"""A unit test that hangs is ended soon: after 10 s, or 60 s where it starts processes or waits for sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

SOON_S, LATE_S = 10, 60
HERE = Path(__file__).resolve().parent
WITH_PROCESSES_OR_SOCKETS = tuple(
    HERE / name
    for name in (
        "agent/test_agent_records.py",
        "agent/test_child.py",
        "breaking/test_tcp_proxy.py",
        "cli",
        "cluster",
        "controller/test_controller_channels.py",
        "controller/ruling/test_controller_scripts.py",
        "deploy",
        "listener",
        "runtime",
        "kafka",
    )
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents or item.get_closest_marker("timeout"):
            continue
        late = any(item.path == place or place in item.path.parents for place in WITH_PROCESSES_OR_SOCKETS)
        item.add_marker(pytest.mark.timeout(LATE_S if late else SOON_S))
