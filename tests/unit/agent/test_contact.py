from __future__ import annotations

import asyncio

import pytest

from regency.broker_agent.agent import in_contact
from regency.model.errors import ZnodeMalformed
from regency.runtime.zookeeper.session import ZkConnectionLost, ZkSessionLost


def test_a_call_is_made_again_while_contact_is_lost_and_said_so_once(caplog, monkeypatch) -> None:
    monkeypatch.setattr("regency.broker_agent.agent.RETRY_MS", 1)
    failures = [ZkConnectionLost("No contact."), ZkSessionLost("There is no session.")]

    def read(word: str) -> str:
        if failures:
            raise failures.pop(0)
        return word

    assert asyncio.run(in_contact(read, "read")) == "read"
    assert caplog.text.count("waiting for ZooKeeper") == 1


def test_what_waiting_does_not_mend_is_raised() -> None:
    def read() -> None:
        raise ZnodeMalformed("/cluster/id", "no JSON")

    with pytest.raises(ZnodeMalformed):
        asyncio.run(in_contact(read))
