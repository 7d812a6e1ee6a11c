"""What leaders write about their ISRs, read back by a controller that rules."""

from __future__ import annotations

import pytest

from regency.model.ids import TopicPartition
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Create

T0 = TopicPartition("t", 0)


def test_a_leader_that_took_a_dead_broker_in_again_is_overruled(ruled):
    ruled.write_topic("t", {0: [2, 3, 1]})
    ruled.kill_broker(3)
    leader, isr, epoch, controller = ruled.state("t")
    assert (leader, isr) == (2, (2, 1))

    ruled.write_state("t", 0, 2, (2, 1, 3), epoch=epoch, controller=controller)
    ruled.notify_isr_change(T0)

    assert ruled.state("t") == (2, (2, 1), epoch + 1, controller)
    assert ruled.agents[2].states[T0] == (2, epoch + 1, (2, 1))


def test_an_isr_of_live_brokers_is_taken_over_as_it_is(ruled):
    ruled.write_topic("t", {0: [2, 3, 1]})

    ruled.write_state("t", 0, 2, (2, 3), epoch=0)
    ruled.notify_isr_change(T0)

    assert ruled.state("t") == (2, (2, 3), 0, 1)
    assert ruled.candidates[0].term.context.leadership(T0).leader_and_isr.isr == (2, 3)


def test_a_leader_is_told_what_it_may_not_know_to_be_written(ruled):
    ruled.write_topic("t", {0: [2, 3, 1]})

    ruled.write_state("t", 0, 2, (2, 3), epoch=0)
    ruled.notify_isr_change(T0)

    assert ruled.agents[2].states[T0] == (2, 0, (2, 3))
    assert ruled.agents[3].states[T0] == (2, 0, (2, 3, 1))


def test_what_is_found_out_about_the_other_partitions_of_a_dead_broker_is_told_their_leaders(ruled):
    ruled.write_topic("t", {0: [2, 3, 1]})
    ruled.write_state("t", 0, 2, (2,), epoch=0)
    ruled.notify_isr_change(T0)
    ruled.write_state("t", 0, 2, (2, 1), epoch=0)

    ruled.kill_broker(3)

    assert ruled.agents[2].states[T0] == (2, 0, (2, 1))


def test_a_dead_member_is_overruled_also_where_its_state_was_read_and_no_notification_came(ruled):
    ruled.write_topic("t", {0: [2, 3, 1]})
    ruled.write_state("t", 0, 2, (2,), epoch=0)
    ruled.notify_isr_change(T0)
    ruled.kill_broker(1)
    ruled.write_state("t", 0, 2, (2, 1), epoch=0)

    ruled.kill_broker(3)  # for which the state is read again

    assert ruled.state("t")[:3] == (2, (2,), 1)
    assert ruled.agents[2].states[T0] == (2, 1, (2,))


@pytest.mark.parametrize("data", [b"", b"{", b'{"version":1}', b'{"version":1,"partitions":[{"topic":"t"}]}'])
def test_a_malformed_notification_is_reported_and_removed_and_the_others_are_read(ruled, caplog, data):
    ruled.write_topic("t", {0: [2, 3, 1]})
    ruled.write_state("t", 0, 2, (2, 3), epoch=0)
    ruled.ensemble.multi(0, [Create(paths.isr_change_prefix(), data, sequential=True)])

    ruled.notify_isr_change(T0)

    assert ruled.ensemble.names(paths.ISR_CHANGE_NOTIFICATION) == ()
    assert ruled.term.context.leadership(T0).leader_and_isr.isr == (2, 3)
    (told,) = (each.getMessage() for each in caplog.records if paths.ISR_CHANGE_NOTIFICATION in each.getMessage())
    assert told.startswith(f"{paths.isr_change_prefix()}0")
    assert told.endswith(". It is removed; which ISRs changed is not known from it.")
