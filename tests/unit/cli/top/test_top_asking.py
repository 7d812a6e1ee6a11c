"""Who is asked, and what becomes of controllers that are older, rule no more, or do not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Self

import pytest

from regency.cli.asking.controllers import describe_controllers
from regency.cli.asking.wire import PartitionFacts, TopicFacts
from regency.cli.exits import CommandFailed, Exit
from regency.cli.top import asking
from regency.cli.top.asking import Asker
from regency.cli.top.reading import OLD_CONTROLLER
from regency.clients.nodes import Node
from regency.model.kafka_errors import ErrorCode
from regency.protos import controller_pb2, inspection_pb2
from regency.runtime.grpc.servers import GrpcServer, service, unary

pytestmark = pytest.mark.timeout(20)


class Played:
    """Controller processes that are played, by broker, in the place of a cluster; `old` ones have no summary."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.answers: dict[int, inspection_pb2.SummariseResponse] = {}
        self.rules: dict[int, bool] = {}
        self.searches = 0
        self.known: list[TopicFacts] = []
        self._servers: list[GrpcServer] = []

    def start(self, broker: int, *, old: bool = False) -> None:
        described = {
            "Describe": unary(
                lambda _: controller_pb2.DescribeControllerResponse(
                    broker_id=broker, active=self.rules[broker], controller_epoch=7, partitions=40
                ),
                controller_pb2.DescribeControllerRequest,
                controller_pb2.DescribeControllerResponse,
            )
        }
        summarised = {
            "Summarise": unary(
                lambda _: self.answers[broker], inspection_pb2.SummariseRequest, inspection_pb2.SummariseResponse
            )
        }
        services = [service("regency.controller.v1.Controller", described)]
        services += [] if old else [service("regency.inspection.v1.Inspection", summarised)]
        server = GrpcServer(services, threads=2, name=f"played-{broker}")
        port = server.bind("127.0.0.1", 0)
        server.start()
        self._servers.append(server)
        self.nodes[broker] = Node(broker, "127.0.0.1", port)

    def ruling(self, broker: int, epoch: int = 7) -> None:
        for each in self.nodes:
            not_ruling = inspection_pb2.SummariseResponse(
                error_code=ErrorCode.NOT_CONTROLLER, broker_id=each, in_contact=True
            )
            self.answers[each], self.rules[each] = not_ruling, False
        self.rules[broker] = True
        self.answers[broker] = inspection_pb2.SummariseResponse(
            broker_id=broker, controller_epoch=epoch, in_contact=True, ruling_since_ms=1, partitions=40, topics=2
        )

    def controllers(self) -> dict[int, Node]:
        self.searches += 1
        return self.nodes

    def brokers(self) -> dict[int, Node]:
        return {broker: Node(broker, "127.0.0.1", 1) for broker in self.nodes}

    def topics(self, names: object = None) -> list[TopicFacts]:
        return self.known

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def close(self) -> None:
        for server in self._servers:
            server.stop(0)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    made = Played()
    monkeypatch.setattr(asking, "cluster_wire", lambda _: made)
    monkeypatch.setattr(asking, "SEARCH_TIMEOUT_MS", 3000)
    yield made
    made.close()


@pytest.fixture
def asker(played: Played) -> Iterator[Asker]:
    made = Asker("nowhere:1")
    yield made
    made.close()


def test_who_rules_is_searched_once_and_again_when_another_does(played, asker):
    for broker in (1, 2, 3):
        played.start(broker)
    played.ruling(2)
    for _ in range(3):
        assert asker.look().controller.broker == 2
    assert played.searches == 1
    played.ruling(3, epoch=8)
    found = asker.look()
    assert (found.controller.broker, found.controller.epoch, found.notes, asker.status) == (3, 8, [], Exit.DONE)
    assert played.searches == 2


def test_of_two_that_say_they_rule_the_newer_epoch_is_asked(played, asker):
    for broker in (1, 2):
        played.start(broker)
    played.ruling(2, epoch=9)
    played.answers[1] = inspection_pb2.SummariseResponse(broker_id=1, controller_epoch=8, ruling_since_ms=1)
    assert asker.look().controller.broker == 2


@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside new ones"])
def test_an_older_controller_tells_what_it_can(played, asker, others):
    played.start(1, old=True)
    if others:
        played.start(2)
    played.ruling(1)
    found = asker.look()
    assert (found.notes, found.controller.broker, found.partitions.partitions) == ([OLD_CONTROLLER], 1, 40)
    assert asker.status == Exit.DONE
    played.rules[1] = False
    found = asker.look()
    assert asker.status == Exit.IN_PROGRESS
    assert found.notes[0].startswith("No controller rules now")
    assert found.controller.broker == 1, "as it was known last"


def test_nobody_rules(played, asker):
    played.start(1)
    played.ruling(1)
    played.answers[1] = inspection_pb2.SummariseResponse(error_code=ErrorCode.NOT_CONTROLLER, broker_id=1)
    found = asker.look()
    assert (found.controller, found.brokers[0].state, asker.status) == (None, "live", Exit.IN_PROGRESS)
    assert found.notes == ["ZooKeeper is away, so no controller rules: broker 1 has no contact with it."]


def test_without_a_controller_brokers_tell_what_they_know(played, asker):
    played.start(1)
    played.answers[1] = inspection_pb2.SummariseResponse(error_code=ErrorCode.NOT_CONTROLLER, broker_id=1)
    played.rules[1] = False
    facts = [PartitionFacts(0, 1, [1, 9], [1, 9]), PartitionFacts(1, -1, [9], [9]), PartitionFacts(2, 1, [9, 1], [1])]
    played.known = [TopicFacts("t", facts)]
    found = asker.look()
    assert (asker.status, found.controller, found.age_s) == (Exit.IN_PROGRESS, None, 0.0)
    assert found.notes == ["ZooKeeper is away, so no controller rules: broker 1 has no contact with it."]
    assert [(each.broker, each.state, each.leads, each.follows) for each in found.brokers] == [
        (1, "live", 2, 0),
        (9, "dead", None, None),
    ]
    counts = found.partitions
    assert (counts.partitions, counts.healthy, counts.under_replicated, counts.offline) == (3, 1, 2, 1)
    assert counts.under_min_isr is None, "no broker tells that"
    assert [(each.partition, each.kind) for each in found.worst] == [(1, "offline"), (2, "under_replicated")]


def test_no_broker_answers(played, asker, monkeypatch):
    played.start(1)
    played.ruling(1)
    asker.look()
    played.close()

    def nobody(_: str) -> Callable[[], object]:
        raise CommandFailed("No broker answers at nowhere:1.", status=Exit.TIMED_OUT)

    monkeypatch.setattr(asking, "cluster_wire", nobody)
    found = asker.look()
    assert (found.notes, asker.status) == (["No broker answers at nowhere:1."], Exit.TIMED_OUT)
    assert found.controller.broker == 1
    assert found.age_s is not None and found.age_s >= 0


def test_every_controller_tells_of_itself_also_an_old_one_and_only_the_ruler_has_an_epoch(played):
    played.start(1)
    played.start(2)
    played.start(3, old=True)
    played.ruling(2)
    played.answers[1] = inspection_pb2.SummariseResponse(error_code=ErrorCode.NOT_CONTROLLER, message="Blocked.")
    played.nodes[4] = Node(4, "127.0.0.1", 1)
    found = describe_controllers(played.nodes)
    told = [(each.broker, each.rules, each.epoch, each.in_contact, each.blocked, each.partitions) for each in found]
    assert told == [
        (1, False, None, False, "Blocked.", None),
        (2, True, 7, True, None, 40),
        (3, False, None, None, None, None),
        (4, None, None, None, None, None),
    ]
