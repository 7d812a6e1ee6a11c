from __future__ import annotations

import logging

import pytest

from regency.pipeline.reading.planning import speak_up

REGENCY = logging.getLogger("regency")


def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process of Spark's; pytest itself listens from the moment a test is called."""
    monkeypatch.setattr(REGENCY, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(logging.getLogger(), "handlers", [])


def test_warnings_are_heard_once_where_nobody_listens(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody_listens(monkeypatch)
    speak_up()
    speak_up()
    logging.getLogger("regency.pipeline").warning("lost %d", 5)
    logging.getLogger("regency.clients").info("no news")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("WARNING regency.pipeline: lost 5")


@pytest.mark.parametrize("name", ["regency", ""])
def test_who_listens_already_is_left_alone(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody_listens(monkeypatch)
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(name).addHandler(handler)
    speak_up()
    logging.getLogger("regency.pipeline").warning("lost")
    assert heard == ["lost"]
    assert capsys.readouterr().err == ""
