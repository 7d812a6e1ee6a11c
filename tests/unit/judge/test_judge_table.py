"""The table of what a configuration allows, and what a partition's facts make of it."""

from __future__ import annotations

import pytest

from regency.judge.operations import (
    ALL,
    EpochBumped,
    HistoryMalformed,
    LeaderChanged,
    LossyCrash,
    Outcome,
    UncleanElection,
)
from regency.judge.parts import allowed_by_partition, facts_of
from regency.judge.table import (
    TABLE,
    Allowance,
    Anomaly,
    Cause,
    Configuration,
    Facts,
    allowance_of,
    allowed_anomalies,
    allowed_rows,
)
from regency.model.ids import TopicPartition

IDEMPOTENT = Configuration()
PLAIN = Configuration(idempotent=False)
LEADER_ONLY = Configuration(idempotent=False, acks=1, retries=False)
NEVER_ALLOWED = {
    Anomaly.PHANTOM,
    Anomaly.FAILED_WRITE_READ,
    Anomaly.NONMONOTONIC_POLL,
    Anomaly.SKIPPED_POLL,
    Anomaly.HOLE_IN_LOG,
    Anomaly.UNREAD_TAIL,
    Anomaly.UNJUDGED,
}


def test_idempotent_producer_with_acks_all_is_allowed_nothing_by_elections_and_single_crashes():
    facts = Facts(leader_changes=9, lossy_replicas=1)
    assert allowed_anomalies(IDEMPOTENT, facts) == frozenset()


@pytest.mark.parametrize("configuration", [IDEMPOTENT, PLAIN, LEADER_ONLY])
def test_some_anomalies_are_never_allowed(configuration):
    worst = Facts(unclean_elections=1, leader_changes=1, lossy_replicas=3, whole_isr_lossy=True, epoch_bumps=1)
    assert not allowed_anomalies(configuration, worst) & NEVER_ALLOWED


def test_plain_producer_may_write_twice_and_out_of_order_when_it_retries():
    assert allowed_anomalies(PLAIN, Facts()) == {
        Anomaly.RETRY_DUPLICATE,
        Anomaly.RETRY_REORDERED,
        Anomaly.RETRY_NONMONOTONIC_SEND,
    }
    one_by_one = Configuration(idempotent=False, in_flight=1)
    assert allowed_anomalies(one_by_one, Facts()) == {Anomaly.RETRY_DUPLICATE}
    assert not allowed_anomalies(Configuration(idempotent=False, retries=False), Facts())


@pytest.mark.parametrize("facts", [Facts(leader_changes=1), Facts(lossy_replicas=1)])
def test_what_only_the_leader_acknowledged_may_be_lost_with_it(facts):
    assert Anomaly.LOST_LEADER_WRITE in allowed_anomalies(LEADER_ONLY, facts)
    assert Anomaly.LOST_WRITE not in allowed_anomalies(LEADER_ONLY, facts)
    assert not allowed_anomalies(LEADER_ONLY, Facts())


@pytest.mark.parametrize(
    ("min_insync", "replication", "lossy", "whole_isr", "allowed"),
    [
        (2, 3, 1, False, False),
        (2, 3, 2, False, True),
        (2, 3, 1, True, True),
        (1, 3, 1, False, True),
        (1, 3, 0, False, False),
        (3, 3, 2, False, False),
        (2, 1, 1, False, True),
    ],
)
def test_loss_is_allowed_once_every_copy_that_had_to_be_there_may_be_gone(
    min_insync, replication, lossy, whole_isr, allowed
):
    configuration = Configuration(min_insync_replicas=min_insync, replication_factor=replication)
    facts = Facts(lossy_replicas=lossy, whole_isr_lossy=whole_isr)
    assert (Anomaly.LOST_WRITE in allowed_anomalies(configuration, facts)) is allowed


def test_unclean_election_allows_loss_and_says_why():
    rows = allowed_rows(IDEMPOTENT, Facts(unclean_elections=1))
    assert [row.cause for row in rows] == [Cause.UNCLEAN_ELECTION]
    assert Anomaly.LOST_WRITE in rows[0].anomalies
    assert rows[0].why


def test_bumped_epoch_allows_duplicates_but_no_loss():
    allowed = allowed_anomalies(IDEMPOTENT, Facts(epoch_bumps=1))
    assert allowed == {Anomaly.DUPLICATE, Anomaly.REORDERED, Anomaly.NONMONOTONIC_SEND}


def test_sessions_that_do_not_follow_the_clients_epochs_excuse_gaps_and_latecomers():
    assert allowed_anomalies(Configuration(sees_epoch_bumps=False), Facts()) == {
        Anomaly.SKIPPED_SEND,
        Anomaly.REORDERED,
    }


def test_every_row_can_hold_and_gives_its_reason():
    assert {row.cause for row in TABLE} == set(Cause)
    assert all(row.why and row.anomalies and set(row.acks) <= {0, 1, ALL} for row in TABLE)


def test_facts_are_each_partitions_own(history):
    history.send(1, 0)
    history.send(2, 0, partition=1)
    history.add(
        LossyCrash("t", 0, 5, 1, 3),
        LossyCrash("t", 0, 6, 1, 1),
        LeaderChanged("t", 0, 7),
        UncleanElection("t", 1, 8),
        EpochBumped("t", 1, 9, "p"),
    )
    assert facts_of(history.operations) == {
        TopicPartition("t", 0): Facts(lossy_replicas=1, whole_isr_lossy=True, leader_changes=1),
        TopicPartition("t", 1): Facts(unclean_elections=1, epoch_bumps=1),
    }


def test_one_partitions_unclean_election_does_not_excuse_another(history):
    for partition in (0, 1):
        history.send(partition, 0, partition=partition)
        history.final([], partition=partition)
    history.add(UncleanElection("t", 1, 8))

    verdict = history.judge(allowed_by_partition(history.operations, IDEMPOTENT))

    assert verdict.counts == {Anomaly.LOST_WRITE: 1}
    assert verdict.tolerated == {Anomaly.LOST_WRITE: 1}
    assert [(finding.partition, finding.allowed) for finding in verdict.findings] == [(0, False), (1, True)]


def test_topics_have_configurations_of_their_own(history):
    history.send(1, 0)
    assert allowed_by_partition(history.operations, {"t": PLAIN}) == {
        TopicPartition("t", 0): Allowance({(ALL, False): allowed_anomalies(PLAIN, Facts())})
    }
    with pytest.raises(HistoryMalformed, match="topic t has no configuration"):
        allowed_by_partition(history.operations, {})


HASTY_AND_LEADER = (IDEMPOTENT, Configuration(acks=1, idempotent=False))


def test_loose_producer_does_not_excuse_the_strict_one_beside_it(history):
    history.send(1, 1, client="hasty")
    history.send(2, 0, client="other")
    history.send(3, 2, client="leader", acks=1, idempotent=False)
    history.add(LeaderChanged("t", 0, 8))
    history.final([1, 2])

    verdict = history.judge(allowed_by_partition(history.operations, HASTY_AND_LEADER))

    assert verdict.counts == {Anomaly.MISPLACED_WRITE: 2}
    assert verdict.tolerated == {Anomaly.LOST_LEADER_WRITE: 1}


def test_findings_of_one_kind_are_allowed_for_one_producer_and_not_for_the_other(history):
    history.send(1, 1)
    history.send(2, 0, client="leader", acks=1, idempotent=False)
    history.add(LeaderChanged("t", 0, 8))
    history.final([1, 2])

    verdict = history.judge(allowed_by_partition(history.operations, {"t": HASTY_AND_LEADER}))

    assert verdict.counts == verdict.tolerated == {Anomaly.MISPLACED_WRITE: 1}
    assert [(each.values, each.allowed) for each in verdict.findings] == [((1,), False), ((2,), True)]


def test_strict_producer_beside_a_plain_one_must_keep_its_order(history):
    history.send(1, 1)
    history.send(2, 0)
    history.send(3, 3, client="q", idempotent=False)
    history.send(4, 2, client="q", idempotent=False)
    history.final([2, 1, 4, 3])

    verdict = history.judge(allowed_by_partition(history.operations, (IDEMPOTENT, PLAIN)))

    assert verdict.counts == {Anomaly.NONMONOTONIC_SEND: 1}
    assert verdict.tolerated == {Anomaly.RETRY_NONMONOTONIC_SEND: 1}


def test_row_holds_for_the_sends_of_the_configuration_that_it_was_taken_for():
    unseen = Configuration(acks=1, sees_epoch_bumps=False)
    allowance = allowance_of((IDEMPOTENT, unseen), Facts())
    assert allowance.allows(Anomaly.SKIPPED_SEND, (1, True))
    assert not allowance.allows(Anomaly.SKIPPED_SEND, (ALL, True))
    assert not allowance.allows(Anomaly.SKIPPED_SEND, (ALL, False))
    assert allowance.allows(Anomaly.SKIPPED_SEND, None)


def test_what_is_about_no_single_send_is_allowed_by_any_producers_row(history):
    history.send(1, 0)
    history.poll((0, [1]))
    history.poll((0, [2]), client="d")
    history.send(2, outcome=Outcome.INDETERMINATE, client="q", acks=1, idempotent=False)
    history.add(LossyCrash("t", 0, 5, 1, 1))

    verdict = history.judge(allowed_by_partition(history.operations, Configuration(acks=1, idempotent=False)))

    assert verdict.tolerated[Anomaly.INCONSISTENT_OFFSET] == 1


def test_send_of_a_kind_that_no_configuration_names_is_allowed_nothing(history):
    history.send(1, 0)
    history.final([])
    history.add(UncleanElection("t", 0, 8))

    assert not history.judge(allowed_by_partition(history.operations, LEADER_ONLY)).clean


def test_allowances_of_two_lives_add_up():
    one, other = Allowance({(1, False): frozenset({Anomaly.LOST_LEADER_WRITE})}), allowance_of((PLAIN,), Facts())
    both = one | other
    assert both.anomalies == one.anomalies | other.anomalies
    assert both.allows(Anomaly.LOST_LEADER_WRITE, (1, False))
    assert not both.allows(Anomaly.LOST_LEADER_WRITE, (ALL, False))
    assert one | one == one
    assert not Allowance()
    assert one
