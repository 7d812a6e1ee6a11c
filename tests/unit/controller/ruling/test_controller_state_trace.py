"""The log of state changes: every transition a line where somebody reads them, and no work where nobody does."""

from __future__ import annotations

import logging

import pytest

from regency.controller.topics.topics import forget_topic
from regency.model.state_changes import STATE_CHANGES


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture):
    """What has been traced since the last look, without who traced it."""

    def new() -> list[str]:
        traced = [each.getMessage() for each in caplog.records if each.name == STATE_CHANGES.name]
        caplog.clear()
        assert all(line.startswith("[Controller id=1 epoch=1] Changed ") for line in traced)
        return [line.removeprefix("[Controller id=1 epoch=1] Changed ") for line in traced]

    with caplog.at_level(logging.DEBUG, STATE_CHANGES.name):
        yield new


def test_every_transition_of_partitions_and_replicas_is_traced(lines, world) -> None:
    world.start_brokers(1, 2)
    world.write_topic("u", {0: [2, 1]})
    world.write_state("u", 0, 2, (2, 1))
    world.candidate(1)
    assert lines() == [
        "state of replica 1 for partition u-0 from NonExistentReplica to OnlineReplica",
        "state of replica 2 for partition u-0 from NonExistentReplica to OnlineReplica",
        "partition u-0 from NonExistentPartition to OnlinePartition with state leader 2, leader epoch 0, isr [2, 1]",
    ]
    world.write_topic("t", {0: [2, 1]})
    assert lines() == [
        "partition t-0 from NonExistentPartition to NewPartition with state none",
        "state of replica 2 for partition t-0 from NonExistentReplica to NewReplica",
        "state of replica 1 for partition t-0 from NonExistentReplica to NewReplica",
        "partition t-0 from NewPartition to OnlinePartition with state leader 2, leader epoch 0, isr [2, 1]",
        "state of replica 2 for partition t-0 from NewReplica to OnlineReplica",
        "state of replica 1 for partition t-0 from NewReplica to OnlineReplica",
    ]
    forget_topic(world.term, "u")
    assert lines() == [
        "state of replica 1 for partition u-0 from OnlineReplica to NonExistentReplica",
        "state of replica 2 for partition u-0 from OnlineReplica to NonExistentReplica",
        "partition u-0 from OnlinePartition to NonExistentPartition with state none",
    ]
    world.kill_broker(2)
    assert lines() == [
        "partition t-0 from OnlinePartition to OfflinePartition with state leader 2, leader epoch 0, isr [2, 1]",
        "partition t-0 from OfflinePartition to OnlinePartition with state leader 1, leader epoch 1, isr [1]",
        "state of replica 2 for partition t-0 from OnlineReplica to OfflineReplica",
    ]


def test_where_nobody_reads_the_controller_does_not_know_of_the_trace(ruled) -> None:
    assert ruled.term.context.trace is None
