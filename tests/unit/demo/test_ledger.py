"""The books of a workload: what they call lost, duplicated, reordered, corrupted, unavailable."""

from __future__ import annotations

from regency.demo.ledger import Ledger, Outage


def sent_and_acked(count: int, key: bytes = b"UA") -> Ledger:
    ledger = Ledger()
    for index in range(count):
        number = ledger.sent(key, b"value-%d" % index)
        ledger.acked(number, partition=0, sent_s=float(index), now_s=index + 0.01)
    return ledger


def test_a_run_read_back_as_it_was_sent_is_clean() -> None:
    ledger = sent_and_acked(3)
    for number in range(3):
        ledger.read(number, b"UA", b"value-%d" % number)
    verdict = ledger.verdict()
    assert verdict.clean
    assert (verdict.acked, verdict.consumed, verdict.lost, verdict.duplicated) == (3, 3, 0, 0)


def test_an_acknowledged_record_that_does_not_come_back_is_lost() -> None:
    ledger = sent_and_acked(3)
    ledger.read(0, b"UA", b"value-0")
    verdict = ledger.verdict()
    assert (verdict.lost, verdict.clean) == (2, False)
    assert ledger.missing() == [1, 2]


def test_a_record_that_was_never_acknowledged_may_be_missing_or_present() -> None:
    ledger = sent_and_acked(1)
    present = ledger.sent(b"AA", b"present")
    ledger.sent(b"AA", b"absent")
    ledger.failed("timed out")
    ledger.read(0, b"UA", b"value-0")
    ledger.read(present, b"AA", b"present")
    verdict = ledger.verdict()
    assert verdict.clean
    assert (verdict.acked, verdict.consumed) == (1, 2)
    assert ledger.failures == {"timed out": 1}


def test_a_record_read_twice_is_a_duplicate_and_counts_once_as_consumed() -> None:
    ledger = sent_and_acked(1)
    ledger.read(0, b"UA", b"value-0")
    ledger.read(0, b"UA", b"value-0")
    verdict = ledger.verdict()
    assert (verdict.consumed, verdict.duplicated, verdict.clean) == (1, 1, False)


def test_a_record_behind_a_later_one_of_its_key_is_reordered_but_other_keys_are_free() -> None:
    ledger = Ledger()
    for key in (b"A", b"B", b"A"):
        ledger.acked(ledger.sent(key, b"v"), 0, 0.0, 0.0)
    ledger.read(2, b"A", b"v")
    ledger.read(1, b"B", b"v")
    ledger.read(0, b"A", b"v")
    verdict = ledger.verdict()
    assert (verdict.reordered, verdict.lost, verdict.clean) == (1, 0, False)


def test_other_content_an_unknown_number_and_a_missing_number_are_corruption() -> None:
    ledger = sent_and_acked(1)
    ledger.read(0, b"UA", b"something else")
    ledger.read(7, b"UA", b"value-0")
    ledger.unreadable()
    assert ledger.verdict().corrupted == 3


def test_unavailability_is_the_longest_wait_without_an_acknowledgement_of_the_partition() -> None:
    ledger = Ledger()
    times = [(0, 0.0, 0.1), (1, 0.0, 0.1), (0, 1.0, 5.0), (0, 1.1, 5.1), (1, 1.0, 1.5), (0, 9.0, 9.2)]
    for partition, sent_s, acked_s in times:
        ledger.acked(ledger.sent(b"k", b"v"), partition, sent_s, acked_s)
    assert ledger.outages() == [Outage(0, 1.0, 5.0), Outage(1, 1.0, 1.5)]
    assert ledger.verdict().unavailable_ms == 4000


def test_an_idle_partition_is_not_unavailable() -> None:
    ledger = Ledger()
    for sent_s in (0.0, 100.0):
        ledger.acked(ledger.sent(b"k", b"v"), 0, sent_s, sent_s + 0.5)
    assert ledger.verdict().unavailable_ms == 500
