"""Published dashboards find the names they query, on the process that is said to export them, even before a record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration

ROWS = [
    (words[0], words[1])
    for line in Path(__file__).with_name("expected_names.txt").read_text("utf-8").splitlines()
    if (words := line.split()) and not line.startswith("#")
]


def test_the_list_is_read_and_names_each_once() -> None:
    names = [name for _, name in ROWS]
    assert len(names) == len(set(names)) > 50
    assert {who for who, _ in ROWS} == {"agent", "controller", "both"}


def test_every_name_is_exported_by_who_is_said_to(
    cluster: Cluster, create_topic: Callable[..., None], scrapes: Callable[..., Any], eventually: Any
) -> None:
    create_topic(cluster)
    ask = scrapes(cluster)
    ruler = cluster.controller_id()

    def missing() -> list[str]:
        exported = {"agent": set[str](), "controller": ask.controller(ruler).names}
        for broker in cluster.broker_ids:
            exported["agent"] |= ask.agent(broker).names
        return [
            f"{role}: {name}"
            for who, name in ROWS
            for role in (("agent", "controller") if who == "both" else (who,))
            if name not in exported[role]
        ]

    eventually(lambda: not missing(), what="no name is missing", within=5)
