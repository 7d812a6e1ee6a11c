"""/livez, /readyz and /debug/threads."""

from __future__ import annotations

import json

from regency.runtime.http.messages import Request
from regency.runtime.http.probes import Condition, probe, threads

ASKED = Request("GET", "/readyz")


def test_a_probe_is_fine_when_every_condition_holds() -> None:
    answer = probe([Condition("a", lambda: ""), Condition("b", lambda: "")])(ASKED)
    assert answer.status == 200
    assert json.loads(answer.body)["ok"] is True


def test_a_probe_says_what_is_missing() -> None:
    answer = probe([Condition("a", lambda: ""), Condition("registered", lambda: "it is not")])(ASKED)
    assert answer.status == 503
    assert json.loads(answer.body) == {
        "ok": False,
        "conditions": [
            {"name": "a", "ok": True, "missing": ""},
            {"name": "registered", "ok": False, "missing": "it is not"},
        ],
    }


def test_stacks_of_all_threads_are_told_by_name() -> None:
    text = threads(ASKED).body.decode()
    assert "MainThread (" in text
    assert "test_stacks_of_all_threads_are_told_by_name" in text
