"""Simulated members of consumer groups: they follow the classic protocol, as far as its coordinator can see.

A member finds the coordinator, joins, brings or fetches its assignment, says that it lives, and commits offsets of what
it owns without waiting for the answers. It does nothing with records. Source: ConsumerCoordinator of Kafka 3.9.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from regency.broker_agent.groups.api import (
    NO_GENERATION,
    NO_MEMBER,
    Caller,
    JoinedMember,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from regency.kafka.groups.subscriptions import CONSUMER
from regency.model.ids import BrokerId, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode
from simulation.clients.view import Connections, addresses
from simulation.cluster.grouping import (
    CommitAsked,
    CoordinatorAsked,
    DeleteGroupAsked,
    Found,
    GroupAsked,
    HeartbeatAsked,
    LeaveAsked,
    OffsetsOfGroupAsked,
    Told,
)
from simulation.judging.group_rules import NOTHING, Commit, GroupRules
from simulation.kernel.scheduler import Process, Scheduler
from simulation.network import Network

SESSION_MS: Final = 4_000
LONG_SESSION_MS: Final = 40_000
"""Of members that shall outlast a restart."""
REBALANCE_MS: Final = 5_000
HEARTBEAT_MS: Final = 700
TICK_MS: Final = 150
TIMEOUT_MS: Final = 2_000
JOIN_TIMEOUT_MS: Final = REBALANCE_MS + 2_000
BACKOFF_MS: Final = 150
PROTOCOL: Final = "range"

_ELSEWHERE: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_JOIN_AGAIN: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
)
_FORGOTTEN: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class Asker:
    """A client of one group's coordinator. Its calls wait, and are an actor's."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        process: Process,
        rules: GroupRules,
        group_id: str,
        brokers: Sequence[BrokerId],
    ) -> None:
        self.process = process
        self.group_id = group_id
        self.coordinator: str | None = None
        """Its address, as far as is known."""
        self.is_settled = False
        """Whether it shall write no more than it must, to be seen to be able to."""
        self._scheduler = scheduler
        self._rules = rules
        self._bootstrap = addresses(brokers)
        self._connections = Connections(network, process)
        self._chance = random.Random(f"{process.name} {process.incarnation}")
        process.on_death(self._connections.close)

    def find(self) -> bool:
        """Ask any broker who coordinates the group; whether somebody does. Waits a moment where nobody does."""
        address = self._chance.choice(self._bootstrap)
        found = self._ask(address, CoordinatorAsked(self.group_id), TIMEOUT_MS)
        self.coordinator = found.address if isinstance(found, Found) and found.error is ErrorCode.NONE else None
        if self.coordinator is None:
            self._rest(BACKOFF_MS)
        return self.coordinator is not None

    def ask(self, request: GroupAsked, timeout_ms: int) -> Told | None:
        """The coordinator's answer; None where there is none, and then it is looked for again."""
        assert self.coordinator is not None
        answer = self._ask(self.coordinator, request, timeout_ms)
        if isinstance(answer, Told):
            return answer
        self.coordinator = None
        return None

    def note(self, words: str, *values: object) -> None:
        """Tell the trace."""
        self._scheduler.trace.note("group", self.process.name, words, *values)

    def take_assignment(self, caller: Caller, synced: SyncResult) -> tuple[TopicPartition, ...]:
        """What a member has got, which is judged."""
        made_in, names = json.loads(synced.assignment) if synced.assignment else (NO_GENERATION, ())
        owned = tuple(TopicPartition(*name) for name in names)
        self.note("owns %s in generation %d as %s", owned, caller.generation, caller.member_id)
        self._rules.assigned(self.group_id, caller, made_in, owned, self._scheduler.now_us)
        return owned

    def _ask(self, address: str, request: GroupAsked, timeout_ms: int) -> Any:
        return self._scheduler.wait(lambda resume: self._connections.ask(address, request, resume, timeout_ms))

    def _rest(self, most_ms: float) -> None:
        delay_ms = most_ms * (0.5 + self._chance.random() / 2)
        self._scheduler.sleep_us(self.process.clock.delay_us(delay_ms))


class Member(Asker):
    """A member. `run` is its main actor."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        process: Process,
        rules: GroupRules,
        group_id: str,
        brokers: Sequence[BrokerId],
        partitions: Sequence[TopicPartition],
        instance_id: str | None,
        session_ms: int,
        is_newest: Callable[[Member], bool],
    ) -> None:
        """`is_newest` says whether nobody else has been started in its place since."""
        super().__init__(scheduler, network, process, rules, group_id, brokers)
        self.session_ms = session_ms
        self.is_lazy = False
        """Whether it does not fetch its assignment, though it says that it lives, until it hears anything else: another
        coordinator need not know of it, and a generation that goes on need not begin anew."""
        self._is_newest = is_newest
        self.is_in_doubt = False
        """Whether a join of it may have come to be, or yet come, that it knows nothing of."""
        self.member_id = NO_MEMBER
        self._stored_id = NO_MEMBER
        """The last id under which it has got an assignment: a coordinator may forget another one, as Kafka's may."""
        self.instance_id = instance_id
        self.generation = NO_GENERATION
        self.owned: tuple[TopicPartition, ...] = ()
        self.committed_us = -1
        """When its last commit began that is known to have been taken."""
        self.wants_to_leave = False
        self._partitions = partitions
        self._must_join = True
        self._heartbeat_ms = 0
        self._asked_settled = False

    @property
    def caller(self) -> Caller:
        return Caller(self.member_id, self.instance_id, self.generation)

    @property
    def is_stable(self) -> bool:
        """Whether it has its assignment, as far as it knows."""
        return not self._must_join

    def run(self) -> None:
        """Take part until it leaves, or is fenced by another one that goes by its name."""
        while not self.wants_to_leave:
            if self.coordinator is None:
                self.find()
            elif self._must_join:
                self._join()
            else:
                self._live()
        self._leave()
        self.process.kill()
        self.process.check_alive()

    # Joining

    def _join(self) -> None:
        self._rules.moves(self.group_id, self.member_id)
        request = JoinRequest(
            self.group_id,
            self.member_id,
            self.instance_id,
            self.process.name,
            "/10.0.0.1",
            CONSUMER,
            ((PROTOCOL, subscription(self._partitions)),),
            self.session_ms,
            REBALANCE_MS,
            requires_known_member_id=self.instance_id is None,
            supports_skipping_assignment=True,
        )
        was_in_doubt, self.is_in_doubt = self.is_in_doubt, True
        told = self.ask(request, JOIN_TIMEOUT_MS)
        if told is None:
            return
        self.is_in_doubt = was_in_doubt
        joined: JoinResult = told.answer
        if joined.error is ErrorCode.NONE:
            self.member_id, self.generation = joined.member_id, joined.generation
            while self.is_lazy and self.coordinator is not None and not self.wants_to_leave:
                self._rest(HEARTBEAT_MS)
                told = self.ask(HeartbeatAsked(self.group_id, self.caller), TIMEOUT_MS)
                if told is None or told.answer is not ErrorCode.NONE:
                    self.is_lazy = False
                    if told is not None:
                        self._take_error(told.answer)
                    return
            if self.coordinator is not None:
                self._sync(joined)
        elif joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        else:
            self._take_error(joined.error, rightful=told.rightful)

    def _sync(self, joined: JoinResult) -> None:
        leads = joined.leader == joined.member_id and not joined.skip_assignment
        assignments = self._assign(joined.members) if leads else {}
        request = SyncRequest(
            self.group_id,
            self.member_id,
            self.instance_id,
            self.generation,
            joined.protocol_type,
            joined.protocol,
            assignments,
        )
        told = self.ask(request, JOIN_TIMEOUT_MS)
        if told is None:
            return
        synced: SyncResult = told.answer
        if synced.error is not ErrorCode.NONE:
            self._take_error(synced.error, rightful=told.rightful)
            return
        self.owned = self.take_assignment(self.caller, synced)
        self._stored_id = self.member_id
        self._must_join = False
        self._asked_settled = False
        self._heartbeat_ms = self.process.clock.monotonic_ms() + HEARTBEAT_MS

    def _assign(self, members: Sequence[JoinedMember]) -> dict[str, bytes]:
        """Partitions by turns, to the members from a random one on."""
        start = self._chance.randrange(len(members))
        order = [*members[start:], *members[:start]]
        shares = [(member, self._partitions[number :: len(order)]) for number, member in enumerate(order)]
        return assign(self._rules, self.group_id, self.generation, shares)

    def _take_error(self, error: ErrorCode, *, rightful: bool = False) -> None:
        """What every answer with an error means. Raises ProcessDied where the member is fenced."""
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.note("is fenced")
            is_stored = self.member_id == self._stored_id
            if rightful and is_stored and self._is_newest(self) and not self.is_in_doubt:
                self._rules.fenced(self.group_id, self.caller)
            self.process.kill()
            self.process.check_alive()
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = NO_MEMBER
        if error in _ELSEWHERE:
            self.coordinator = None
        if error in _JOIN_AGAIN:
            self._must_join = True
            self.generation = NO_GENERATION
            self.owned = ()
        if error is not ErrorCode.UNKNOWN_MEMBER_ID:
            self._rest(BACKOFF_MS)

    # Living

    def _live(self) -> None:
        self._rest(TICK_MS)
        if self.coordinator is None or self._must_join:
            return
        is_due = self.process.clock.monotonic_ms() >= self._heartbeat_ms
        if is_due and (self.is_settled or not self.owned or self._chance.random() < 0.7):
            self._heartbeat()
            return
        if not self.owned:
            return
        if self.is_settled:
            if not self._asked_settled:
                self._asked_settled = True
                self._commit(self.owned)
        elif self._chance.random() < 0.5:
            self._commit(self._chance.sample(self.owned, self._chance.randint(1, len(self.owned))))

    def _heartbeat(self) -> None:
        caller, began_us = self.caller, self._scheduler.now_us
        told = self.ask(HeartbeatAsked(self.group_id, caller), TIMEOUT_MS)
        if told is None or caller != self.caller:
            return
        self._heartbeat_ms = self.process.clock.monotonic_ms() + HEARTBEAT_MS
        if told.answer is ErrorCode.NONE:
            if told.rightful and told.is_loaded:
                self._rules.taken(self.group_id, caller, began_us)
                self._rules.lives(self.group_id, caller, began_us, min(self.session_ms, REBALANCE_MS))
            return
        self._hear(told, told.answer, caller)
        self._take_error(told.answer, rightful=told.rightful)

    def _commit(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit, and go on before the answer comes."""
        caller, began_us, rules = self.caller, self._scheduler.now_us, self._rules
        commits = {each: rules.commits(self.group_id, each, began_us) for each in partitions}
        assert self.coordinator is not None
        address = self.coordinator

        def answered(answer: Any) -> None:
            if not isinstance(answer, Told):
                if self.coordinator == address:
                    self.coordinator = None
                self._asked_settled = False
                return
            errors = take_commits(answer.answer, commits, self._scheduler.now_us)
            if not errors:
                rules.taken(self.group_id, caller, began_us)
                self.committed_us = max(self.committed_us, began_us)
                return
            self._asked_settled = False
            if caller != self.caller:
                return
            error = errors.pop()
            self._hear(answer, error, caller)
            if error in _ELSEWHERE and self.coordinator == address:
                self.coordinator = None
            if error in _JOIN_AGAIN:
                self._heartbeat_ms = 0  # whose answer says the same

        self._connections.ask(address, CommitAsked(self.group_id, caller, offsets_of(commits)), answered, TIMEOUT_MS)

    def _hear(self, told: Told, error: ErrorCode, caller: Caller) -> None:
        if told.rightful and error in _FORGOTTEN:
            self._rules.unknown(self.group_id, caller, error, self._scheduler.now_us)

    def _leave(self) -> None:
        self._rules.moves(self.group_id, self.member_id)
        if self.coordinator is None or self.member_id == NO_MEMBER or self.instance_id is not None:
            return
        self.ask(LeaveAsked(self.group_id, (LeavingMember(self.member_id, None),)), TIMEOUT_MS)


class Tool(Asker):
    """Commits offsets of a group without members, as tools do, and as consumers that assign themselves."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        process: Process,
        rules: GroupRules,
        group_id: str,
        brokers: Sequence[BrokerId],
        partitions: Sequence[TopicPartition],
    ) -> None:
        super().__init__(scheduler, network, process, rules, group_id, brokers)
        self.committed_us = -1
        self._partitions = partitions
        self._settled_us = -1

    def keep(self, then: Callable[[], object]) -> None:
        """Commit once, so that the group never has nothing, and its generations never begin anew."""
        while self.committed_us < 0:
            self._rest(300)
            if self.coordinator is not None or self.find():
                self._commit()
        then()

    def run(self) -> None:
        """Commit now and then, until it is settled and that was answered well."""
        while not (self.is_settled and self.committed_us > self._settled_us >= 0):
            self._rest(600)
            if self.is_settled and self._settled_us < 0:
                self._settled_us = self._scheduler.now_us
            if self.coordinator is not None or self.find():
                self._commit()

    def _commit(self) -> None:
        began_us = self._scheduler.now_us
        chosen = self._chance.sample(self._partitions, self._chance.randint(1, len(self._partitions)))
        commits = {each: self._rules.commits(self.group_id, each, began_us) for each in chosen}
        wordy = frozenset(chosen[:1] if self._chance.random() < 0.2 and not self.is_settled else ())
        told = self.ask(CommitAsked(self.group_id, Caller(), offsets_of(commits), wordy), TIMEOUT_MS)
        if told is None:
            return
        if errors := take_commits(told.answer, commits, self._scheduler.now_us):
            if errors.intersection(_ELSEWHERE):
                self.coordinator = None
        else:
            self.committed_us = began_us


class Reader(Asker):
    """Asks what a group has committed, at random moments."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        process: Process,
        rules: GroupRules,
        group_id: str,
        brokers: Sequence[BrokerId],
        partitions: Sequence[TopicPartition],
    ) -> None:
        super().__init__(scheduler, network, process, rules, group_id, brokers)
        self.read_us = -1
        """When its last question began that was answered; once settled, with all that is committed."""
        self._partitions = partitions

    def run(self) -> None:
        """Ask for ever."""
        while True:
            self._rest(500)
            if self.coordinator is not None or self.find():
                self._read()

    def _read(self) -> None:
        began_us = self._scheduler.now_us
        partitions = None if self._chance.random() < 0.3 else tuple(self._partitions)
        is_settled = self.is_settled
        request = OffsetsOfGroupAsked(self.group_id, partitions, is_settled or self._chance.random() < 0.3)
        told = self.ask(request, TIMEOUT_MS)
        if told is None:
            return
        if isinstance(told.answer, ErrorCode):
            if told.answer in _ELSEWHERE:
                self.coordinator = None
            return
        if not told.rightful:
            self.coordinator = None
            return
        undecided = False
        for partition in self._partitions:
            held = told.answer.get(partition)
            if isinstance(held, ErrorCode):
                undecided = True
            else:
                offset = NOTHING if held is None else held.offset
                self._rules.read(self.group_id, partition, offset, began_us, self._scheduler.now_us)
        if not (undecided and is_settled):
            self.read_us = began_us


class Shortlived(Asker):
    """Makes groups by a commit, deletes them, and looks whether any of them is there again."""

    def run(self) -> None:
        """Go on for ever, with one group after another."""
        deleted: list[str] = []
        number = 0
        while True:
            self._rest(800)
            if self.coordinator is not None or self.find():
                told = self.ask(OffsetsOfGroupAsked(self.group_id, None, False), TIMEOUT_MS)
                if told is not None and self.group_id in deleted and told.rightful and isinstance(told.answer, dict):
                    self._rules.deleted(self.group_id, len(told.answer))
            if deleted and (self.is_settled or self._chance.random() < 0.5):
                self._turn_to(self._chance.choice(deleted))
            elif not self.is_settled:
                number += 1
                self._turn_to(f"{self.process.name}-{number}")
                if self.find() and self._is_made() and self._is_deleted():
                    deleted.append(self.group_id)

    def _turn_to(self, group_id: str) -> None:
        self.group_id = group_id
        self.coordinator = None

    def _is_made(self) -> bool:
        """Whether it is known that there is an offset; a commit without an answer may yet come."""
        told = self.ask(CommitAsked(self.group_id, Caller(), {TopicPartition("short", 0): Offset(1)}), TIMEOUT_MS)
        return told is not None and set(told.answer.values()) == {ErrorCode.NONE}

    def _is_deleted(self) -> bool:
        for _ in range(5):
            if self.coordinator is not None or self.find():
                told = self.ask(DeleteGroupAsked(self.group_id), TIMEOUT_MS)
                if told is not None and told.answer is ErrorCode.NONE:
                    return True
                self.coordinator = None
            self._rest(800)
        return False


def assign(
    rules: GroupRules,
    group_id: str,
    generation: int,
    shares: Sequence[tuple[JoinedMember, Sequence[TopicPartition]]],
) -> dict[str, bytes]:
    """What a leader sends of these shares, by member id; it is noted."""
    rules.made(group_id, generation, {member.instance_id or member.member_id: share for member, share in shares})
    return {member.member_id: json.dumps((generation, share)).encode() for member, share in shares}


def subscription(partitions: Sequence[TopicPartition]) -> bytes:
    """What a member says that it reads, as consumers do."""
    topics = sorted({each.topic.encode() for each in partitions})
    names = b"".join(len(topic).to_bytes(2, "big") + topic for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff" * 4


def offsets_of(commits: dict[TopicPartition, Commit]) -> dict[TopicPartition, Offset]:
    """As a request has them."""
    return {each: Offset(commit.offset) for each, commit in commits.items()}


def take_commits(
    results: dict[TopicPartition, ErrorCode], commits: dict[TopicPartition, Commit], at_us: int
) -> set[ErrorCode]:
    """Write down what came of commits; the errors."""
    for partition, commit in commits.items():
        commit.answered(results[partition], at_us)
    return set(results.values()) - {ErrorCode.NONE}
