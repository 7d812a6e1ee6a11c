"""What /readyz and /livez of an agent demand, one condition after the other, as a start and an end go through them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from regency.broker_agent.assembly import Parts
from regency.broker_agent.control.metadata_cache import BrokerNode, MetadataCache, MetadataChange, MetadataUpdate
from regency.broker_agent.metrics.probes import Recovery, live_conditions, ready_conditions
from regency.broker_agent.process.data_loop import DataLoop, LoopClosed
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch

ME = BrokerId(3)
FINE = {"recovered": "", "registered": "", "metadata": "", "not_stopping": ""}


class Agent:
    """An agent that is ready, until a test takes something away. `parts` is all that the conditions read."""

    def __init__(self) -> None:
        self.recovery = Recovery()
        self.stopping = False
        self.metadata = MetadataCache()
        self.generation: int | None = 1
        registration = SimpleNamespace(owner_generation=lambda: self.generation, epoch=lambda: BrokerEpoch(7))
        self.parts = cast(Parts, SimpleNamespace(metadata=self.metadata, registration=registration))
        self.has_parts = True

    def hear_of(self, epoch: int) -> None:
        brokers = [BrokerNode(ME, BrokerEpoch(epoch), ())]
        update = MetadataUpdate(ControllerEpoch(1), BrokerId(1), [MetadataChange(brokers)], 1, True, True, True)
        self.metadata.apply(update)

    def missing(self) -> dict[str, str]:
        conditions = ready_conditions(
            ME, lambda: self.parts if self.has_parts else None, self.recovery, lambda: self.stopping
        )
        return {each.name: each.missing() for each in conditions}


@pytest.fixture
def agent() -> Agent:
    made = Agent()
    made.hear_of(7)
    return made


def test_an_agent_that_has_all_is_ready(agent: Agent) -> None:
    assert agent.missing() == FINE


def test_it_is_not_ready_before_every_log_is_recovered_and_says_how_far_it_is(agent: Agent) -> None:
    agent.has_parts = False
    assert agent.missing()["registered"] and agent.missing()["metadata"]
    assert agent.missing()["recovered"] == "no log is open yet"
    agent.recovery.tell(17, 40)
    assert agent.missing()["recovered"] == "17 of 40 logs are open"
    agent.recovery.tell(40, 40)
    assert agent.missing()["recovered"] == "40 of 40 logs are open", "they are not in use yet"
    agent.has_parts = True
    assert agent.missing() == FINE


def test_it_is_not_ready_without_its_registration(agent: Agent) -> None:
    agent.generation = None
    assert agent.missing() == {**FINE, "registered": "this broker is not registered in ZooKeeper"}


def test_it_is_not_ready_while_metadata_names_an_earlier_incarnation(agent: Agent) -> None:
    agent.hear_of(6)
    assert agent.missing() == {**FINE, "metadata": "no controller has told yet that it counts on this broker"}
    agent.hear_of(7)
    assert agent.missing() == FINE


def test_it_is_not_ready_once_it_is_told_to_stop(agent: Agent) -> None:
    agent.stopping = True
    assert agent.missing() == {**FINE, "not_stopping": "this agent is stopping"}


def test_it_is_not_alive_when_its_data_loop_does_not_come_to_a_call() -> None:
    class Loop:
        def __init__(self, error: LoopClosed | None) -> None:
            self.error = error

        def call(self, work: object, *, timeout_ms: int) -> None:
            assert timeout_ms <= 3_000
            if self.error is not None:
                raise self.error

    def missing(loop: Loop) -> list[str]:
        return [each.missing() for each in live_conditions(cast(DataLoop, loop))]

    assert missing(Loop(None)) == [""]
    stuck = LoopClosed("The data loop did not come to it within 3 s.")
    assert missing(Loop(stuck)) == [stuck.message]
