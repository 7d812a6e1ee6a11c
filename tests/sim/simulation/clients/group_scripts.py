"""Scripted members of consumer groups: chains of requests that known holes need and chance seldom arranges.

Each is played in a group of its own, by static members. Where an answer does not come, it is begun anew in another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from regency.broker_agent.groups.api import NO_MEMBER, Caller, JoinRequest, JoinResult, SyncRequest, SyncResult
from regency.kafka.groups.subscriptions import CONSUMER
from regency.model.ids import Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode
from simulation.clients.group_member import (
    JOIN_TIMEOUT_MS,
    PROTOCOL,
    REBALANCE_MS,
    TIMEOUT_MS,
    Asker,
    assign,
    offsets_of,
    subscription,
    take_commits,
)
from simulation.cluster.grouping import CommitAsked, GroupAsked, HeartbeatAsked, Told
from simulation.judging.group_rules import SURE

SESSION_MS: Final = 20_000
"""Longer than a script takes."""
LOOK_MS: Final = 50
SOON_MS: Final = 400
"""By then a request has arrived that nothing holds up."""
READ: Final = (TopicPartition("work", 0),)


class _GivenUp(Exception):
    """An answer did not come, or another than the script goes on with."""


class Scripted(Asker):
    """Plays one script after another, until it is settled. `run` is its actor."""

    def run(self) -> None:
        """Play them in turn."""
        scripts = (self.older_generation, self.taken_over, self.replaced_while_assigned)
        number = 0
        while not self.is_settled:
            self._rest(1_000)
            self.play(scripts[number % len(scripts)], number)
            number += 1

    def play(self, script: Callable[[], None], number: int) -> bool:
        """Play one in a new group; whether it came to its end."""
        self.group_id = f"{self.process.name}-{number}"
        self.coordinator = None
        try:
            if self.find():
                script()
                return True
        except _GivenUp as why:
            self.note("%s ends early: %s", self.group_id, why)
        return False

    # Scripts

    def older_generation(self) -> None:
        """A member takes part in a second generation, and commits as one of the first."""
        first = self._take_part("one")
        second = self._take_part("one", first.member_id)
        if second.generation <= first.generation:
            raise _GivenUp("no second generation")
        self._rest(LOOK_MS)
        began_us = self._scheduler.now_us
        commits = {each: self._rules.commits(self.group_id, each, began_us) for each in READ}
        told = self._answer(self._send(CommitAsked(self.group_id, first, offsets_of(commits))))
        if not take_commits(told.answer, commits, self._scheduler.now_us):
            self._rules.taken(self.group_id, first, began_us)

    def taken_over(self) -> None:
        """A static member is started a second time; the first one goes on with whatever it may ask."""
        began_us = self._scheduler.now_us
        first = self._take_part("one")
        self._take_part("one")
        offsets = dict.fromkeys(READ, Offset(0))
        asked = (
            HeartbeatAsked(self.group_id, first),
            CommitAsked(self.group_id, first, offsets),
            self._sync_request(first, {}),
            self._join_request("one", first.member_id),
        )
        told = [self._answer(self._send(each)) for each in asked]
        lasted_ms = (self._scheduler.now_us - began_us) / 1_000
        if lasted_ms < SESSION_MS * SURE:
            answers = (_error(each.answer) for each in told if each.rightful and each.is_loaded)
            self._rules.replaced(self.group_id, first, answers)

    def replaced_while_assigned(self) -> None:
        """A static member is started again after its leader was told of it, and before the leader has assigned."""
        joining = [self._send(self._join_request(name)) for name in ("one", "other")]
        joined = [self._joined(each) for each in joining]
        leader = next((each for each in joined if each.members), None)
        other = next((each for each in joined if each is not leader), None)
        if leader is None or other is None or leader.generation != other.generation or len(leader.members) < 2:
            raise _GivenUp("they are not of one generation")
        name, led_by = ("one", "other") if joined[0] is other else ("other", "one")
        again = self._send(self._join_request(name))
        self._rest(2 * SOON_MS)
        synced = self._assign(led_by, leader, to=name)
        if synced.error is ErrorCode.REBALANCE_IN_PROGRESS:
            leader = self._joined(self._send(self._join_request(led_by, leader.member_id)))
            anew = self._joined(again)
            self._assign(led_by, leader, to=name)
        else:
            anew = self._joined(again)
        self._fetch_assignment(Caller(anew.member_id, name, anew.generation))

    # Steps

    def _take_part(self, instance_id: str, member_id: str = NO_MEMBER) -> Caller:
        """Join as the only member, and fetch the assignment."""
        joined = self._joined(self._send(self._join_request(instance_id, member_id)))
        caller = Caller(joined.member_id, instance_id, joined.generation)
        if joined.members and not joined.skip_assignment:
            synced = self._assign(instance_id, joined, to=instance_id)
            if synced.error is not ErrorCode.NONE:
                raise _GivenUp(synced.error.name)
        else:
            self._fetch_assignment(caller)
        return caller

    def _assign(self, instance_id: str, joined: JoinResult, *, to: str) -> SyncResult:
        """Have one member get everything, as the leader of all."""
        shares = [(each, READ if each.instance_id == to else ()) for each in joined.members]
        assignments = assign(self._rules, self.group_id, joined.generation, shares)
        return self._synced(Caller(joined.member_id, instance_id, joined.generation), assignments)

    def _fetch_assignment(self, caller: Caller) -> None:
        synced = self._synced(caller, {})
        if synced.error is not ErrorCode.NONE:
            raise _GivenUp(synced.error.name)

    def _synced(self, caller: Caller, assignments: dict[str, bytes]) -> SyncResult:
        synced: SyncResult = self._answer(self._send(self._sync_request(caller, assignments))).answer
        if synced.error is ErrorCode.NONE:
            self.take_assignment(caller, synced)
        return synced

    def _joined(self, sent: Sequence[Any]) -> JoinResult:
        joined: JoinResult = self._answer(sent).answer
        if joined.error is not ErrorCode.NONE:
            raise _GivenUp(joined.error.name)
        return joined

    def _send(self, request: GroupAsked) -> Sequence[Any]:
        """What will have the answer when it has come."""
        answers: list[Any] = []
        if self.coordinator is None:
            raise _GivenUp("nobody coordinates")
        is_short = not isinstance(request, JoinRequest | SyncRequest)
        timeout_ms = TIMEOUT_MS if is_short else JOIN_TIMEOUT_MS
        self._connections.ask(self.coordinator, request, answers.append, timeout_ms)
        return answers

    def _answer(self, sent: Sequence[Any]) -> Told:
        while not sent:
            self._rest(LOOK_MS)
        told = sent[0]
        if not isinstance(told, Told):
            raise _GivenUp("no answer")
        return told

    def _join_request(self, instance_id: str, member_id: str = NO_MEMBER) -> JoinRequest:
        return JoinRequest(
            self.group_id,
            member_id,
            instance_id,
            self.process.name,
            "/10.0.0.1",
            CONSUMER,
            ((PROTOCOL, subscription(READ)),),
            SESSION_MS,
            REBALANCE_MS,
            requires_known_member_id=False,
            supports_skipping_assignment=True,
        )

    def _sync_request(self, caller: Caller, assignments: dict[str, bytes]) -> SyncRequest:
        who = caller.member_id, caller.instance_id, caller.generation
        return SyncRequest(self.group_id, *who, CONSUMER, PROTOCOL, assignments)


def _error(answer: Any) -> ErrorCode:
    """What one is told, whatever it was that it asked."""
    if isinstance(answer, ErrorCode):
        return answer
    if isinstance(answer, dict):
        (error,) = answer.values()
        assert isinstance(error, ErrorCode)
        return error
    assert isinstance(answer, JoinResult | SyncResult)
    return answer.error
