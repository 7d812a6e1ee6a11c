"""The judge on histories of a log that keeps all of Kafka's promises, and on the same with one promise broken."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest
from correct_log import (
    ACTIONS,
    deny_one,
    exchange_two,
    forge_one,
    forget_a_poll,
    history_of,
    long_run,
    lose_the_last,
    write_twice,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from regency.judge.findings import add_verdicts
from regency.judge.operations import Drained, FinalRead, Operation, Poll, Recreated
from regency.judge.parts import Claims, allowed_by_partition
from regency.judge.table import Anomaly, Configuration
from regency.judge.verdict import judge, judge_piece

STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 255)), max_size=120)
CONFIGURATIONS = st.sampled_from(
    [
        Configuration(),
        Configuration(idempotent=False, in_flight=1),
        Configuration(idempotent=False, acks=1, in_flight=1),
        Configuration(idempotent=False, acks=0, in_flight=1),
    ]
)


@given(CONFIGURATIONS, STEPS, st.booleans(), st.integers(0, 1 << 16))
@settings(max_examples=300)
def test_log_that_keeps_its_promises_gives_no_finding(configuration, steps, to_the_end, seed):
    history = history_of(configuration, steps)
    if not to_the_end:
        history = [each for each in history if not isinstance(each, FinalRead | Drained)]
    shuffled = random.Random(seed).sample(history, len(history))

    verdict = judge(shuffled, allowed_by_partition(shuffled, configuration))

    assert verdict.clean, verdict.summary()


@pytest.mark.parametrize(
    ("breaks", "anomaly"),
    [
        (lose_the_last, Anomaly.LOST_WRITE),
        (write_twice, Anomaly.DUPLICATE),
        (exchange_two, Anomaly.INCONSISTENT_OFFSET),
        (forge_one, Anomaly.PHANTOM),
        (forget_a_poll, Anomaly.SKIPPED_POLL),
        (deny_one, Anomaly.FAILED_WRITE_READ),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_broken_promise_is_found_in_a_long_run(
    breaks: Callable[[list[Operation], random.Random], list[Operation]], anomaly: Anomaly, seed: int
):
    history = long_run(seed)
    assert judge(history).clean

    assert judge(breaks(history, random.Random(seed))).counts.get(anomaly), f"seed {seed}"


@given(CONFIGURATIONS, st.integers(0, 1 << 32), st.integers(0, 9))
@settings(max_examples=200)
def test_pieces_add_up_to_the_verdict_on_the_whole(configuration, seed, forgotten):
    choose = random.Random(seed)
    pieces: list[list[Operation]] = []
    drained = [Drained(choose.randrange(1, 200))] * choose.randrange(2)
    for number in range(3):
        steps = [(choose.choice(ACTIONS), choose.randrange(256)) for _ in range(choose.randrange(100))]
        own = [each for each in history_of(configuration, steps) if not isinstance(each, Drained)]
        for _ in range(min(forgotten, len(own))):
            left_out = choose.choice(own)
            own = [each for each in own if each is not left_out or isinstance(each, Recreated)]
        pieces.append([msgspec.structs.replace(each, topic=f"t{number}") for each in own])
    whole = [*(each for piece in pieces for each in piece), *drained]
    polls = [each for each in whole if isinstance(each, Poll)]
    went_on = {(each.client, each.session) for each in polls if drained and each.invoked_ms >= drained[0].at_ms}
    final = any(isinstance(each, FinalRead) for each in whole)
    claims = Claims(complete=final or bool(drained), drained=bool(drained), went_on=frozenset(went_on))

    verdicts = [judge_piece(choose.sample(piece, len(piece)), claims, producers=configuration) for piece in pieces]

    assert add_verdicts(verdicts) == judge(whole, allowed_by_partition(whole, configuration))
