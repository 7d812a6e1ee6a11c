"""Decisions written by hand: of a cluster to which happens what the tables of `cluster-history` can be wrong about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regency.history.records import Decision, encode_decisions
from regency.model.ids import BrokerId, ControllerEpoch, LeaderEpoch, ZkVersion

T0 = 1_777_939_190_000
"""2026-05-04 23:59:50 UTC: midnight is 10 s later."""

ALL = [2, 3, 1]
"""The replicas of most topics, the first leads."""


class Teller:
    """Writes decisions of one process, numbered; times count from T0."""

    def __init__(self, broker: int, *, role: str = "controller") -> None:
        self.broker, self.role = BrokerId(broker), role
        self.epoch, self.number, self.event = 0, 0, ""
        self.told: list[Decision] = []

    def reign(self, epoch: int, at: int) -> None:
        self.epoch, self.number = epoch, 0
        self.note(at, "failover", "controller", "a candidate", f"broker {self.broker}, epoch {epoch}")

    def note(self, at: int, event: str, subject: str, before: str, after: str, why: str = "why", **more: Any) -> None:
        self.number += 1
        epoch = ControllerEpoch(self.epoch)
        decision = Decision(
            epoch, self.number, event, subject, before, after, why, T0 + at, self.broker, self.role, **more
        )
        self.told.append(decision)

    def state(
        self,
        at: int,
        event: str,
        partition: str,
        before: tuple[int, list[int], int] | None,
        after: tuple[int, list[int], int],
        version: int,
        why: str = "why",
    ) -> None:
        leader, isr, epoch = after
        words = "nothing" if before is None else f"leader {before[0]}, isr {before[1]}, leader epoch {before[2]}"
        if self.role == "agent" and before is not None:
            words = f"isr {before[1]}"
        self.note(
            at,
            event,
            partition,
            words,
            f"leader {leader}, isr {isr}, leader epoch {epoch}",
            leader=BrokerId(leader),
            isr=tuple(map(BrokerId, isr)),
            leader_epoch=LeaderEpoch(epoch),
            version=ZkVersion(version),
            why=why,
        )

    def number_by_time(self) -> None:
        """Number them as if they had been told in the order of their times."""
        self.told.sort(key=lambda decision: decision.time_ms)
        self.told = [with_fields(decision, number=number) for number, decision in enumerate(self.told, 1)]


def with_fields(decision: Decision, **changed: Any) -> Decision:
    fields = {name: getattr(decision, name) for name in Decision.__struct_fields__}
    return Decision(**{**fields, **changed})


def story() -> dict[str, list[Decision]]:
    """Decisions by file. Topics are called after what happens to them; agents 2 and 3 lead, in controller epoch 1."""
    one, two, three, anew = Teller(1), Teller(2, role="agent"), Teller(3, role="agent"), Teller(3, role="agent")
    for agent in (two, three, anew):
        agent.epoch = 1
    one.reign(1, 0)

    def create(at: int, topic: str, replicas: list[int]) -> None:
        words = f"first live replica of {replicas}"
        one.state(at, "create_topics", f"{topic}-0", None, (replicas[0], replicas, 0), 0, words)

    def shrink(at: int, topic: str, before: list[int], after: list[int], version: int, teller: Teller = two) -> None:
        grown = len(after) > len(before)
        leader = int(teller.broker)
        event = "isr_expand" if grown else "isr_shrink"
        teller.state(at, event, f"{topic}-0", (leader, before, 0), (leader, after, 0), version)

    for topic in (
        "again",
        "twice",
        "deleted",
        "kept",
        "moved",
        "away",
        "wordless",
        "unsaid",
        "back",
        "left",
        "odd",
        "unread",
    ):
        create(100, topic, ALL)
    create(110, "renumbered", [3, 2])
    create(120, "alone", [4])
    create(130, "ending", [4])

    for at, topic in enumerate(("again", "twice", "deleted", "kept", "moved", "unsaid", "back", "left", "unread")):
        shrink(1000 + at, topic, ALL, [2, 1], 1)
    for topic in ("again", "deleted", "kept"):
        one.note(2000, "delete_topics", f"topic {topic}", "kept", "to be deleted")
    one.note(2100, "delete_topics", "topic kept", "to be deleted", "not to be deleted")
    for topic in ("again", "deleted"):
        one.note(2500, "replicas_deleted", f"topic {topic}", "being deleted", "gone")
    for topic in ("again", "twice"):
        create(2500, topic, ALL)
    shrink(4000, "again", ALL, [2, 3], 1)
    shrink(5000, "again", [2, 3], ALL, 2)

    shrink(3600, "left", [2, 1], [2], 2)  # version 3 is missing: broker 3 was back, and leaves again
    shrink(9100, "left", [2, 3], [2], 4)

    on_its_way = "from [2, 3, 1] to [2, 1, 4], adding [4], removing [3]; the leader stays"
    one.state(6000, "alter_reassignments", "moved-0", (2, [2, 1], 0), (2, [2, 1], 1), 2, on_its_way)
    shrink(7000, "moved", [2, 1], [2, 1, 4], 3)
    done = "replicas [2, 1, 4] instead of [2, 3, 1], added [4], removed [3]; the leader stays"
    one.state(7100, "isr_change", "moved-0", (2, [2, 1, 4], 1), (2, [2, 1, 4], 2), 4, done)
    done = "replicas [2, 1] instead of [2, 3, 1], added [], removed [3]; the leader stays"
    one.state(7200, "alter_reassignments", "away-0", (2, ALL, 0), (2, [2, 1], 1), 1, done)
    one.state(7300, "partition_reassignment", "wordless-0", (2, ALL, 0), (2, [2, 1], 1), 1)
    # version 2 of unsaid is missing, in which broker 3 was moved away; version 2 of back, in which it came back
    one.state(8000, "leader_balance", "unsaid-0", (1, [2, 1], 1), (2, [2, 1], 2), 3, "preferred replica of [2, 1]")
    one.state(9000, "leader_balance", "back-0", (2, ALL, 0), (1, ALL, 1), 3, "preferred replica of [1, 2, 3]")

    for topic, version, after, at in (("odd", 1, [2, 1], 1700), ("odd", 2, ALL, 2700), ("unread", 3, ALL, 2800)):
        shrink(at, topic, [], after, version)
        two.told[-1] = with_fields(two.told[-1], from_="isr [x]")

    shrink(1900, "renumbered", [3, 2], [3], 1, three)
    shrink(2900, "renumbered", [3], [3, 2], 2, three)
    shrink(20_000, "renumbered", [3, 2], [3], 3, anew)
    shrink(21_500, "renumbered", [3], [3, 2], 4, anew)

    one.note(10_000, "broker_change", "broker 4", "live, epoch 7", "dead")
    for topic in ("alone", "ending"):
        one.state(10_010, "broker_change", f"{topic}-0", (4, [4], 0), (-1, [4], 1), 1)
    one.note(11_000, "delete_topics", "topic ending", "kept", "to be deleted")
    one.note(11_900, "broker_change", "broker 4", "absent", "live, epoch 9")
    one.state(12_000, "broker_change", "alone-0", (-1, [4], 1), (4, [4], 2), 2)
    one.note(60_000, "alter_configs", "settings of topic x", "a", "b")
    for teller in (one, two, three, anew):
        teller.number_by_time()
    return {
        "1/controller.jsonl": one.told,
        "2/agent.jsonl": two.told,
        "3/agent.jsonl": anew.told,
        "backup/3/agent.jsonl": three.told,
        "backup/2/agent.jsonl": two.told[:5],
    }


def write_story(directory: Path) -> list[Decision]:
    """The story in files. Returns all decisions, also those that are there twice."""
    files = story()
    for name, told in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(encode_decisions(told))
    return [decision for told in files.values() for decision in told]
