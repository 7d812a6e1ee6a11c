"""The gRPC face: messages in, messages out."""

from __future__ import annotations

import pytest
from admin_requests import creating, enveloped, new_topic

from regency.controller.admin.forwarded import forward
from regency.controller.state.reports import Taken
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import controller_pb2 as pb
from regency.runtime.zookeeper.session import Create

T0 = TopicPartition("t", 0)


def test_controlled_shutdown_counts_what_remains(served):
    forward(served.gate, enveloped(creating(new_topic("t", assignments=[(0, [3, 1])])), 7))

    answer = served.service.controlled_shutdown(pb.ControlledShutdownRequest(broker_id=3, broker_epoch=served.epoch(3)))

    assert (answer.error_code, answer.remaining_partitions) == (0, 0)
    assert served.world.state("t")[0] == 1


def test_describe_tells_what_it_rules(served):
    answer = served.service.describe(pb.DescribeControllerRequest())

    assert (answer.broker_id, answer.active, answer.controller_epoch, answer.live_brokers) == (1, True, 1, 3)
    assert answer.session_id == served.candidate.session.session_id
    assert answer.state == "Idle"


def report(served, broker: int = 3, *, epoch: int | None = None, full: bool = False) -> pb.ReportReplicasResponse:
    change = pb.ReplicaReports(
        topic="t",
        topic_id=bytes(16),
        partition=[0, 1],
        role=[1, 2],
        leader=[3, 1],
        leader_epoch=[4, 5],
        zk_version=[1, 2],
        high_watermark=[10, 20],
        log_end_offset=[11, 21],
        log_start_offset=[0, 1],
        isr_len=[2, 0],
        isr=[3, 1],
        directory=["/d", "/e"],
        damaged=[1],
        damage=["a flipped byte"],
    )
    return served.service.report_replicas(
        pb.ReportReplicasRequest(
            broker_id=broker, broker_epoch=served.epoch(3) if epoch is None else epoch, full=full, changes=[change]
        )
    )


def test_report_of_a_live_broker_is_kept_and_the_first_must_be_full(served):
    first, full, later = report(served), report(served, full=True), report(served)

    assert [each.send_full for each in (first, full, later)] == [True, False, False]
    kept = served.candidate.controller.reports.replica(3, TopicPartition("t", 1))
    assert (kept.leader_epoch, kept.log_end_offset, kept.isr, kept.directory) == (5, 21, (), "/e")
    assert kept.damage == "a flipped byte"
    other = served.candidate.controller.reports.replica(3, T0)
    assert (other.isr, other.damage) == ((3, 1), "")


@pytest.mark.parametrize(("broker", "epoch"), [(3, 1), (8, 1)])
def test_report_of_an_unknown_incarnation_is_refused(served, broker, epoch):
    answer = report(served, broker, epoch=epoch)

    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert served.candidate.controller.reports.replica(broker, T0) is None


def test_report_that_names_a_newer_controller_is_refused(served):
    request = pb.ReportReplicasRequest(broker_id=3, broker_epoch=served.epoch(3), controller_epoch=9, full=True)
    assert served.service.report_replicas(request).error_code == ErrorCode.NOT_CONTROLLER
    request.controller_epoch = 1
    assert served.service.report_replicas(request).error_code == ErrorCode.NONE


def test_reports_of_brokers_that_died_are_forgotten(ruled):
    candidate = ruled.candidates[0]
    candidate.controller.reports.take(Taken(3, 1, 1, 0, True, 0), [])
    ruled.kill_broker(3)

    assert candidate.controller.reports.take(Taken(3, 1, 1, 0, False, 0), [])


def test_candidate_that_does_not_rule_says_so_to_everything_but_describe(idle):
    service = idle.service
    assert forward(idle.gate, enveloped(creating(), 7)).outcome.error_code == ErrorCode.NOT_CONTROLLER
    assert service.controlled_shutdown(pb.ControlledShutdownRequest()).error_code == ErrorCode.NOT_CONTROLLER
    assert service.report_replicas(pb.ReportReplicasRequest()).error_code == ErrorCode.NOT_CONTROLLER
    assert not service.describe(pb.DescribeControllerRequest()).active


@pytest.mark.parametrize(
    ("path", "data", "mended", "advice"),
    [
        (paths.CONTROLLER, b"{", None, "No controller rules until that znode is deleted."),
        (paths.CONTROLLER, b'{"version":1}', None, "No controller rules until that znode is deleted."),
        (paths.CONTROLLER_EPOCH, b"seven", b"7", "No controller rules until that znode is set right."),
    ],
)
def test_where_nobody_can_be_elected_the_answer_names_the_znode_and_what_to_do(
    ruled, serving, path, data, mended, advice
):
    candidate = ruled.candidates[0]
    if path == paths.CONTROLLER:
        ruled.ensemble.delete(path)
        ruled.ensemble.multi(4242, [Create(path, data)])
    else:
        ruled.ensemble.put(path, data)
        ruled.ensemble.delete(paths.CONTROLLER)
    ruled.settle()
    served = serving(candidate)

    answer = forward(served.gate, enveloped(creating(), 7)).outcome
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert answer.message.startswith(f"{path}: ")
    assert answer.message.endswith(advice)
    assert served.service.report_replicas(pb.ReportReplicasRequest()).error_code == ErrorCode.NOT_CONTROLLER

    if mended is None:
        ruled.ensemble.delete(path)
    else:
        ruled.ensemble.put(path, mended)
    ruled.settle()
    assert candidate.controller.view.blocked == ""  # also while it waits to race again
    ruled.clock.advance(20_000)
    ruled.settle()
    assert candidate.rules
    assert candidate.controller.view.blocked == ""


def test_controller_that_is_too_busy_says_so(ruled, serving):
    served = serving(ruled.candidates[0])  # its loop does not run
    served.gate._timeout_ms = 1

    answer = forward(served.gate, enveloped(creating(), 7)).outcome

    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "Idle" in answer.message


def test_service_serves_the_methods_of_the_proto_file(idle):
    methods = idle.service.handler()
    assert methods.service_name() == pb.DESCRIPTOR.services_by_name["Controller"].full_name
