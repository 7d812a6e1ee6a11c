"""Scrapes of a live cluster, parsed as Prometheus' own client does."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import parser

from regency.cluster.cluster import Cluster


def fetch(address: str, path: str, **headers: str) -> tuple[int, bytes]:
    """Status and body of a GET at host:port."""
    connection = http.client.HTTPConnection(address, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


class Samples:
    """What one scrape said."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in parser.text_string_to_metric_families(text):
            for sample in family.samples:
                self._values.setdefault(sample.name, []).append((sample.labels, sample.value))

    @property
    def names(self) -> set[str]:
        return set(self._values)

    def all(self, name: str, **labels: str) -> list[float]:
        """Values of every series with these labels, among others."""
        return [value for held, value in self._values.get(name, []) if labels.items() <= held.items()]

    def sum(self, name: str, **labels: str) -> float:
        return sum(self.all(name, **labels))

    def one(self, name: str, **labels: str) -> float:
        """The value of the series with exactly these labels."""
        (value,) = [value for held, value in self._values.get(name, []) if held == labels]
        return value


class Scrapes:
    """Scrapes of the agents and controllers of a cluster. Answers may be a second old."""

    def __init__(self, cluster: Cluster) -> None:
        self._brokers = {broker.id: broker for broker in cluster.state.brokers}

    def agent(self, broker: int) -> Samples:
        return self._read(self._brokers[broker].agent_http)

    def controller(self, broker: int) -> Samples:
        return self._read(self._brokers[broker].controller_http)

    def sum(self, name: str, *brokers: int, **labels: str) -> float:
        return sum(self.agent(broker).sum(name, **labels) for broker in brokers or self._brokers)

    def probe(self, broker: int, path: str) -> tuple[int, dict[str, str]]:
        """Status of a probe of an agent, and what is missing by condition."""
        status, body = fetch(self._brokers[broker].agent_http, path)
        return status, {each["name"]: each["missing"] for each in json.loads(body)["conditions"]}

    def _read(self, address: str) -> Samples:
        status, body = fetch(address, "/metrics")
        assert status == 200, body
        return Samples(body.decode())


@pytest.fixture
def scrapes() -> Callable[[Cluster], Scrapes]:
    return Scrapes


@pytest.fixture
def http_get() -> Callable[..., Any]:
    return fetch
