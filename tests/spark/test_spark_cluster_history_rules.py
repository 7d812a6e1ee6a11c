"""The rules of `cluster-history` about the states of a partition, without Spark, on histories at random."""

from __future__ import annotations

import random
from operator import attrgetter
from typing import Any

import pytest
from cluster_history_reference import Reference
from cluster_history_story import ALL, Teller

from regency.history.records import Decision
from regency.pipeline.jobs.cluster_history.absences import absences
from regency.pipeline.jobs.cluster_history.leaderless import Note, Noticed, deaths, intervals
from regency.pipeline.jobs.cluster_history.lives import Noted, lives

WHYS = ("why", "first live replica of {}", "from [1] to {}, adding [1], removing {}", "replicas {} instead of [1]")
EVENTS = ("failover", "broker_change", "isr_shrink", "isr_expand", "partition_reassignment")

_absence = attrgetter(
    "life", "broker", "left_ms", "back_ms", "ended_ms", "out_ms", "open", "ended_by", "complete", "left_by", "back_by"
)
_interval = attrgetter("life", "broker", "began_ms", "ended_ms", "ms", "open")


def history(chance: random.Random) -> list[Decision]:
    """Of one partition under controllers and leaders, with versions missing, lives anew, and clocks that go back."""
    tellers = [Teller(1), Teller(2, role="agent"), Teller(3, role="agent")]
    version, at = -1, 10_000
    for epoch in range(1, 4):
        tellers[0].reign(epoch, at)
        for teller in tellers[1:]:
            teller.epoch = epoch
        for _ in range(12):
            at += chance.choice((-500, 0, 7, 900))
            if chance.random() < 0.3:
                broker, dead = chance.choice(ALL), chance.random() < 0.7
                tellers[0].note(at, "broker_change", f"broker {broker}", "x", "dead" if dead else "live, epoch 7")
                continue
            version = 0 if chance.random() < 0.05 else version + chance.choice((1, 1, 1, 2))
            isr = chance.sample(ALL, chance.randint(1, 3))
            before = None if chance.random() < 0.2 else (chance.choice(ALL), chance.sample(ALL, 2), 1)
            after = chance.choice((-1, *ALL)), isr, chance.randint(1, 3)
            why = chance.choice(WHYS).replace("{}", str(chance.sample(ALL, 2)))
            chance.choice(tellers).state(at, chance.choice(EVENTS), "t-0", before, after, version, why)
    return [each for teller in tellers for each in teller.told]


def noted(each: Decision, at_ms: int) -> Noted:
    fields: dict[str, Any] = {name: getattr(each, name) for name in Decision.__struct_fields__}
    own = {name: fields[name] for name in Noted._fields if name in fields}
    return Noted(topic="t", partition=0, at_ms=at_ms, ends=(), **own)


@pytest.mark.parametrize("seed", range(200))
def test_rules_find_what_is_found_by_walking_through_the_states(seed: int) -> None:
    reference = Reference(history(random.Random(seed)))
    at, end = reference._at, reference.end
    notes = [each for each in reference.decisions if each.subject.startswith("broker ")]
    epochs = {int(each.controller_epoch): at[each] for each in reference.decisions if each.from_ == "a candidate"}
    known = Noticed(
        deaths(
            Note(each.controller_epoch, int(each.subject[7:]), each.number, at[each], each.to == "dead")
            for each in notes
        ),
        epochs,
    )
    found = lives([noted(each, at[each]) for each in reference.decisions if each.version is not None])
    key = "t", 0
    assert sorted(reference.states()) == sorted(
        (*key, each.life, each.place, each.noted.version, each.began_ms, each.ended_ms, each.ended_by)
        for states in found
        for each in states
    )
    assert sorted(reference.absences(), key=str) == sorted(
        ((*key, *_absence(each)) for states in found for each in absences(states, end)), key=str
    )
    assert sorted(reference.leaderless(), key=str) == sorted(
        ((*key, *_interval(each)) for states in found for each in intervals(states, known, end)), key=str
    )
