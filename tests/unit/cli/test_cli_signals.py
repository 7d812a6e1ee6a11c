"""A signal ends a command in order, wherever it finds it."""

from __future__ import annotations

import importlib.abc
import signal
import sys

import confluent_kafka
import pytest

from regency.cli import program
from regency.cli.exits import exit_on_termination


@pytest.mark.parametrize(
    ("number", "raised"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit), (signal.SIGHUP, SystemExit)],
)
def test_signal_that_meets_a_callback_of_the_kafka_client_is_no_error(
    number: signal.Signals, raised: type[BaseException]
) -> None:
    def delivered(*_: object) -> None:
        signal.raise_signal(number)

    producer = confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    producer.produce("t", b"x", on_delivery=delivered)
    producer.purge()
    with pytest.raises(raised) as found, exit_on_termination():
        producer.poll(5)
    assert getattr(found.value, "code", 143) == 143


def test_handlers_are_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with exit_on_termination():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_hangup_that_is_ignored_as_under_nohup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with exit_on_termination():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


class InterruptedImport(importlib.abc.MetaPathFinder):
    """Ctrl-C while a module is being looked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == self._name:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_while_the_commands_are_imported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "regency.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [InterruptedImport("regency.cli.main"), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 130
