"""/livez and /readyz of a controller process: when it is alive, when it is ready, and what they say where it is not."""

from __future__ import annotations

from regency.controller.controller import Controller
from regency.controller.events import BrokersChanged, EventLoop, EventQueue
from regency.controller.metrics import LONGEST_EVENT_MS, EventMeter, live_conditions, ready_conditions
from regency.model.settings import BrokerSettings
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Delete

NOT_LOOKED = "its last look at /controller has not gone well, or there was none yet"


def missing(conditions) -> list[str]:
    return [condition.missing() for condition in conditions]


def test_alive_unless_an_event_never_ends(world):
    queue = EventQueue(world.clock)
    events, told = EventMeter(queue, world.clock), []

    def slow(_event: object) -> None:
        for passed in (LONGEST_EVENT_MS, 1):
            world.clock.advance(passed)
            told.extend(missing(conditions))

    loop = EventLoop(queue, events.timed(slow))
    conditions = live_conditions(loop, events)
    loop.process(BrokersChanged())

    assert told == ["", "its event thread is busy with BrokerChange since 300 s"]
    assert missing(conditions) == [""]


def test_ready_while_it_has_a_session_and_takes_part_in_elections(world):
    world.start_brokers(1, 2)
    both = [world.candidate(1).controller, world.candidate(2).controller]
    conditions = [ready_conditions(each, lambda: 1) for each in both]
    assert [each.view.ruling for each in both] == [True, False]
    assert list(map(missing, conditions)) == [["", ""]] * 2

    world.ensemble.put(paths.CONTROLLER_EPOCH, b"not a number")
    world.ensemble.multi(0, [Delete(paths.CONTROLLER, None)])
    world.settle()

    for session, elector in map(missing, conditions):
        assert not session
        assert "/controller_epoch" in elector
        assert "No controller rules until" in elector
    none = ready_conditions(both[0], lambda: 0)
    assert missing(none)[0] == "there is no session with ZooKeeper"
    world.ensemble.put(paths.CONTROLLER_EPOCH, b"5")
    world.pass_time(60_000)
    assert list(map(missing, conditions)) == [["", ""]] * 2


def test_not_ready_before_it_has_looked_who_rules(world):
    queue = EventQueue(world.clock)
    session = world.fakes.Session(world.ensemble)
    controller = Controller(BrokerSettings(broker_id=1), session, queue, open_channels=None, clock=world.clock)

    assert missing(ready_conditions(controller, lambda: 1)) == ["", NOT_LOOKED]
