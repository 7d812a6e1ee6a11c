"""What the project's Prometheus knows: its targets, its rules, the alerts that fire, the data behind expressions."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import msgspec

from compose_test.project import HOST

STEP_S = 10
TIMEOUT_S = 10.0


class Target(msgspec.Struct, frozen=True):
    """Something it scrapes. `daemon` is empty for what is no process of ours."""

    job: str
    instance: str
    daemon: str
    health: str
    last_error: str


class Alert(msgspec.Struct, frozen=True, order=True):
    """An alert that is pending or firing. `instance` is empty where it is about the whole cluster."""

    name: str
    instance: str
    state: str


class Prometheus:
    """Asks the HTTP API through the published port. Methods raise OSError where it does not answer."""

    def __init__(self, port: int) -> None:
        self._base = f"http://{HOST}:{port}/api/v1"

    def ready(self) -> bool:
        try:
            self._get("status/runtimeinfo")
        except OSError:
            return False
        return True

    def targets(self) -> list[Target]:
        return sorted(
            (
                Target(
                    each["labels"]["job"],
                    each["labels"]["instance"],
                    each["labels"].get("daemon", ""),
                    each["health"],
                    each["lastError"],
                )
                for each in self._get("targets", state="active")["activeTargets"]
            ),
            key=lambda target: (target.job, target.instance, target.daemon),
        )

    def rules(self) -> list[dict[str, Any]]:
        """Every alerting rule, with `name`, `health`, `lastError` and `lastEvaluation`."""
        groups = self._get("rules", type="alert")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def alerts(self) -> list[Alert]:
        found = self._get("alerts")["alerts"]
        return sorted(
            Alert(each["labels"]["alertname"], each["labels"].get("instance", ""), each["state"]) for each in found
        )

    def firing(self) -> list[Alert]:
        return [alert for alert in self.alerts() if alert.state == "firing"]

    def has_data(self, expression: str, *, since_s: float | None) -> bool:
        """Whether an expression gives anything now, or at any step since the wall-clock time `since_s`.

        Raises ValueError with its words where it does not take the expression.
        """
        now = time.time()
        if since_s is None:
            return bool(self._get("query", query=expression, time=f"{now:.3f}")["result"])
        start = now - max(now - since_s, STEP_S)
        words = {"start": f"{start:.3f}", "end": f"{now:.3f}", "step": str(STEP_S)}
        return bool(self._get("query_range", query=expression, **words)["result"])

    def _get(self, path: str, **words: str) -> Any:
        url = f"{self._base}/{path}?{urllib.parse.urlencode(words)}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code in (400, 422):
                raise ValueError(f"{words.get('query', path)}: {json.load(error).get('error', '')}") from error
            raise
