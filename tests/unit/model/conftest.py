"""What tests of settings start from."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from regency.model.settings import BrokerSettings, SettingsInvalid, parse_settings

Parse = Callable[..., BrokerSettings]
Refuse = Callable[..., tuple[str, ...]]


def _properties(changes: dict[str, str]) -> dict[str, str]:
    return {"broker.id": "1", "zookeeper.connect": "localhost:2181", **changes}


@pytest.fixture
def parse() -> Parse:
    """Settings of a smallest valid file with these keys in it."""
    return lambda changes: parse_settings(_properties(changes), source="server.properties")


@pytest.fixture
def refuse() -> Refuse:
    """The problems of a smallest valid file with these keys in it."""

    def problems(changes: dict[str, str]) -> tuple[str, ...]:
        with pytest.raises(SettingsInvalid) as caught:
            parse_settings(_properties(changes), source="server.properties")
        return caught.value.problems

    return problems
