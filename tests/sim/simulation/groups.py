"""The consumer groups of a run: their topic, their members, what befalls those, and what must have come of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

from regency.broker_agent.groups import coordinator, group, loading
from regency.broker_agent.groups.api import JoinRequest, SyncRequest
from regency.broker_agent.groups.context import GroupState
from regency.kafka.groups.placement import OFFSETS_TOPIC
from regency.model.ids import TopicPartition
from simulation.admin import Admin
from simulation.clients.group_member import LONG_SESSION_MS, REBALANCE_MS, SESSION_MS, Member, Reader, Shortlived, Tool
from simulation.clients.group_scripts import Scripted
from simulation.cluster.agent import SimAgent
from simulation.defects.patching import Patch
from simulation.judging.facts import Facts
from simulation.judging.group_rules import GroupRules
from simulation.kernel.scheduler import Process
from simulation.shape import COMPACTED, OFFSETS_MIN_INSYNC, SECOND_US, Shape, TopicShape
from simulation.world import World

T = TypeVar("T", Member, Reader, Scripted, Shortlived, Tool)

INVENTED: Final = tuple(TopicPartition("work", number) for number in range(2))
"""Partitions that groups read though there are none: no fault takes away what is committed of them."""
KEPT: Final = (TopicPartition("kept", 0),)
"""Of which every group has an offset."""
TOOLS: Final = "tools"
"""The group without members."""
LATE_JOINS_US: Final = 15 * SECOND_US
"""So long after a member has ended of it may still arrive, and take the place of its successor."""
_SESSIONS_MS: Final = (SESSION_MS, SESSION_MS, LONG_SESSION_MS)
_STATIC_SESSIONS_MS: Final = (SESSION_MS, LONG_SESSION_MS, LONG_SESSION_MS, LONG_SESSION_MS)
NEW_MEMBER_MS: Final = 12_000
"""In the place of five minutes, which no run lasts."""


@contextmanager
def in_pieces(shape: Shape, seed: int) -> Iterator[None]:
    """Inside, partitions of groups are loaded in small pieces, and what takes minutes takes seconds."""
    chance = random.Random(f"pieces of groups {seed}")
    patch = Patch()
    try:
        if shape.groups is not None:
            patch.set(loading, "READ_BYTES", chance.choice((1, 300, loading.READ_BYTES)))
            patch.set(loading, "RECORDS_PER_STEP", chance.choice((1, loading.RECORDS_PER_STEP)))
            patch.set(coordinator, "SLICE_STEPS", chance.choice((1, 1, coordinator.SLICE_STEPS)))
            patch.set(group, "NEW_MEMBER_JOIN_TIMEOUT_MS", NEW_MEMBER_MS)
        yield
    finally:
        patch.undo()


class _Place:
    """What a member is for: whoever is it at the time goes by this name."""

    def __init__(self, name: str, group_id: str, instance_id: str | None, session_ms: int) -> None:
        self.name = name
        self.group_id = group_id
        self.instance_id = instance_id
        self.lives = 0
        self.session_ms = session_ms
        """Of whoever it is, so that in the end it is known of those that are gone who is missed in time."""
        self.member: Member | None = None
        self.wanted = True
        self.doubted_us = -LATE_JOINS_US
        """When the last of those ended whose join may still arrive."""
        self.replaced: list[Member] = []
        """Who was it before, and was not ended for it."""

    @property
    def is_alive(self) -> bool:
        return self.member is not None and self.member.process.alive


class Groups:
    """All groups, from `start` on. Without any, nothing happens."""

    def __init__(self, world: World, facts: Facts, seed: int) -> None:
        self._world = world
        self._shape = world.shape.groups
        self._chance = random.Random(f"lives of members {seed}")
        self._settled_us: int | None = None
        self._places: list[_Place] = []
        self._tools: list[Tool] = []
        self._readers: list[Reader] = []
        self._passing: list[Shortlived | Scripted] = []
        """Who has groups of its own, one after another."""
        self._processes: list[Process] = []
        self._missed_late: set[str] = set()
        """Members with long sessions that ended while they joined: a coordinator that loads the generation which took
        them in does not know that they never asked for their share, and waits for their sessions, as Kafka's does."""
        self._partitions = [*INVENTED, TopicPartition(world.shape.topics[0].name, 0)]
        self.rules = GroupRules(world.zookeeper, facts, 1 if self._shape is None else self._shape.partitions)
        if self._shape is None:
            return
        facts.min_insync[OFFSETS_TOPIC] = OFFSETS_MIN_INSYNC
        if self._shape.is_compacted:
            facts.compacted_topics.add(OFFSETS_TOPIC)
        self._turns = random.Random(f"turns {seed}")
        sessions = random.Random(f"sessions {seed}")
        self._longest_turn_us = self._turns.choice((0, 1_000, 50_000, 200_000))
        world.turn_us = lambda: int(self._turns.random() * self._longest_turn_us)
        world.on_started.append(self._agent_started)
        for number, members in enumerate(self._shape.groups):
            group_id = f"group-{number}"
            for each in range(members.dynamic + members.static):
                name = f"member-{number}{each}"
                instance_id = name if each >= members.dynamic else None
                session_ms = sessions.choice(_SESSIONS_MS if instance_id is None else _STATIC_SESSIONS_MS)
                self._places.append(_Place(name, group_id, instance_id, session_ms))

    def start(self) -> None:
        """Have the topic created, and everybody begin."""
        if self._shape is not None:
            policy = dict(COMPACTED) if self._shape.is_compacted else {}
            configs = policy | {
                "segment.bytes": str(self._shape.segment_bytes),
                "retention.bytes": "-1",
                "retention.ms": "-1",
            }
            topic = TopicShape(
                OFFSETS_TOPIC, self._shape.partitions, 3, OFFSETS_MIN_INSYNC, configs=tuple(configs.items())
            )
            Admin(self._world, (topic,), self._begin)

    def settle(self) -> None:
        """Whoever lives stays, whoever is gone comes back; nobody commits more than needed."""
        self._settled_us = self._world.scheduler.now_us
        self._longest_turn_us = 0
        for place in self._places:
            if place.is_alive:
                assert place.member is not None
                place.member.process.resume()
                place.member.is_settled = True
                if place.instance_id is not None:  # in the place of one before it, it need not be told anything
                    place.member.is_lazy = False
        for asker in (*self._tools, *self._readers, *self._passing):
            asker.is_settled = True
        for group_id in self._names():
            self._regroup(group_id)

    def _regroup(self, group_id: str) -> None:
        """What befalls a group that is to become stable: a member dies for good, another one begins anew.

        Or the first is not missed until its session ends, at a coordinator that has never heard of it.
        """
        places = [each for each in self._places if each.group_id == group_id]
        dynamic = [each for each in places if each.instance_id is None]
        self._chance.shuffle(dynamic)
        gone = dynamic.pop() if len(dynamic) > 1 and self._chance.random() < 0.7 else None
        ended = [member for place in places for member in place.replaced]
        if gone is not None:
            gone.wanted = False
            ended += [gone.member] if gone.member is not None else []
        if gone is not None and gone.member is not None and gone.member.session_ms == SESSION_MS:
            self._move(group_id)
        elif (anew := dynamic[0].member) is not None:
            ended.append(anew)
        for member in ended:
            self._note(member, "ends")
            member.process.kill()
        for place in places:
            if place.wanted:
                self._revive(place)

    def _move(self, group_id: str) -> None:
        """Restart the broker that coordinates the group."""
        for broker, agent in self._world.agents.items():
            if agent.process.alive and self.rules.is_rightful(agent, group_id):
                self._world.kill_agent(broker)
                self._world.scheduler.at(SECOND_US, partial(self._world.start_agent, broker))
                return

    def unfinished(self) -> list[str]:
        """What is not well yet, in words: after `settle`."""
        if self._shape is None:
            return []
        since_us = self._settled_us
        assert since_us is not None
        if not self._readers:
            return [f"{OFFSETS_TOPIC} was never created"]
        found = [f"{tool.process.name} has not committed" for tool in self._tools if tool.committed_us < since_us]
        for place in [each for each in self._places if each.wanted]:
            member = place.member
            if member is None or not member.process.alive:
                self._revive(place)
                found.append(f"{place.name} is gone")
            elif not member.is_stable:
                found.append(f"{place.name} has no assignment")
            elif member.owned and member.committed_us < since_us:
                found.append(f"{place.name} has not committed")
        found += [f"{reader.process.name} has read nothing" for reader in self._readers if reader.read_us < since_us]
        found = found or [reason for group_id in self._names() for reason in self._of(group_id)]
        return found or list(self._waiting())

    def close(self) -> None:
        """Everybody goes."""
        for process in self._processes:
            process.kill()

    def end(self) -> None:
        """Everybody goes. Raises InvariantBroken where commits were not kept."""
        self.close()
        self.rules.check_commits()

    # Within

    def _agent_started(self, agent: SimAgent) -> None:
        agent.is_rightful = partial(self.rules.is_rightful, agent)

    def _begin(self) -> None:
        for group_id in self._names():
            keeper = self._make(Tool, f"keeper-{group_id}", group_id, 1, KEPT)
            self._world.scheduler.spawn(keeper.process, "keeper", partial(keeper.keep, partial(self._join, group_id)))
        for number in range(2):
            self._tools.append(self._new(Tool, f"tool-{number}", TOOLS, 1, self._partitions))
        for group_id in (TOOLS, *self._names()):
            self._readers.append(self._new(Reader, f"reader-{group_id}", group_id, 1, self._partitions))
        self._passing.append(self._new(Shortlived, "short", "short", 1))
        self._passing.append(self._new(Scripted, "scripted", "scripted", 1))
        if self._settled_us is None:
            self._wait()

    def _names(self) -> list[str]:
        return sorted({each.group_id for each in self._places})

    def _join(self, group_id: str) -> None:
        for place in self._places:
            if place.group_id == group_id:
                self._revive(place)

    def _new(self, kind: Callable[..., T], name: str, group_id: str, life: int, *more: object) -> T:
        asker = self._make(kind, name, group_id, life, *more)
        self._world.scheduler.spawn(asker.process, name, asker.run)
        return asker

    def _make(self, kind: Callable[..., T], name: str, group_id: str, life: int, *more: object) -> T:
        world = self._world
        process = Process(world.scheduler, name, incarnation=life)
        self._processes.append(process)
        return kind(world.scheduler, world.network, process, self.rules, group_id, list(world.hosts), *more)

    def _revive(self, place: _Place) -> None:
        if place.is_alive:
            return
        place.lives += 1
        if place.member is not None and place.member.is_in_doubt:
            place.doubted_us = self._world.scheduler.now_us

        def is_newest(member: Member) -> bool:
            alone_us = self._world.scheduler.now_us - place.doubted_us
            others = any(each.process.alive or each.is_in_doubt for each in place.replaced)
            return place.member is member and not others and alone_us > LATE_JOINS_US

        more = self._partitions, place.instance_id, place.session_ms, is_newest
        place.member = self._new(Member, place.name, place.group_id, place.lives, *more)
        place.member.is_lazy = self._settled_us is None and self._chance.random() < 0.1
        place.member.is_settled = self._settled_us is not None
        place.member.process.on_death(partial(self._ended, place.member))

    def _ended(self, member: Member) -> None:
        if member.instance_id is None and member.session_ms == LONG_SESSION_MS and not member.is_stable:
            self._missed_late.add(member.member_id)

    def _of(self, group_id: str) -> list[str]:
        """What is wrong with a group at its coordinator."""
        home = self.rules.home(group_id)
        members = [each.member for each in self._places if each.group_id == group_id and each.member and each.wanted]
        lacking = set(self._partitions) - {partition for each in members for partition in each.owned}
        ids = {each.member_id for each in members}
        for agent in self._world.agents.values():
            if not agent.process.alive or agent.parts is None or not self.rules.is_rightful(agent, group_id):
                continue
            shard = agent.parts.groups._led[home.partition].shard
            held = shard._groups.get(group_id)
            if held is None or held.state is not GroupState.STABLE:
                return [f"{group_id} is {'nowhere' if held is None else held.state.value}"]
            known = set(held.members.ids)
            if ids < known and known - ids <= self._missed_late:
                return []
            if known != ids:
                return [f"{group_id} has members {sorted(known)}, not {sorted(ids)}"]
            return [f"nobody in {group_id} has {sorted(lacking)}"] if lacking else []
        return [f"nobody coordinates {group_id}"]

    def _waiting(self) -> Iterator[str]:
        """Who waits for an answer, though all groups are stable."""
        for agent in self._world.agents.values():
            if agent.process.alive and agent.groups is not None:
                for request in agent.groups.waiting.values():
                    if isinstance(request, JoinRequest | SyncRequest):
                        yield f"a {type(request).__name__} of {request.group_id} waits at broker {agent.broker_id}"

    # What befalls members

    def _wait(self) -> None:
        self._world.scheduler.at(int((0.3 + 3 * self._chance.random()) * SECOND_US), self._befall)

    def _befall(self) -> None:
        if self._settled_us is not None:
            return
        fates = (
            self._dies,
            self._leaves,
            self._is_paused,
            self._is_replaced,
            self._all_die,
            self._is_left_behind,
            self._comes_back_soon,
        )
        place = self._chance.choice(self._places)
        (fate,) = self._chance.choices(fates, (6, 4, 5, 2, 1, 4, 4))
        for_us = int(self._chance.choice((0.2, 1, 3, 8)) * (0.5 + self._chance.random()) * SECOND_US)
        if place.member is not None and place.is_alive:
            fate(place, place.member, for_us)
        self._wait()

    def _dies(self, place: _Place, member: Member, for_us: int) -> None:
        self._note(member, "dies")
        member.process.kill()
        self._world.scheduler.at(for_us, partial(self._come_back, place))

    def _leaves(self, place: _Place, member: Member, for_us: int) -> None:
        self._note(member, "leaves")
        member.wants_to_leave = True

        def gone() -> None:
            self._world.scheduler.at(for_us, partial(self._come_back, place))

        member.process.on_death(gone)

    def _is_paused(self, place: _Place, member: Member, for_us: int) -> None:
        del place
        self._note(member, "is paused")
        member.process.pause()
        self._world.scheduler.at(for_us, member.process.resume)

    def _is_replaced(self, place: _Place, member: Member, for_us: int) -> None:
        """A static member is started a second time, and fenced when it goes on."""
        if place.instance_id is not None:
            self._is_paused(place, member, for_us)
            place.replaced.append(member)
            place.member = None
            self._revive(place)

    def _all_die(self, place: _Place, member: Member, for_us: int) -> None:
        del member
        for each in self._places:
            if each.group_id == place.group_id and each.member is not None and each.is_alive:
                self._dies(each, each.member, int(for_us * (0.8 + self._chance.random() / 5)))

    def _is_left_behind(self, place: _Place, member: Member, for_us: int) -> None:
        """A static member goes on when a new generation of its group has begun, and is still one of it."""
        for each in self._places:
            if each.instance_id is not None and each.member is not None and each.is_alive:
                long_s = REBALANCE_MS / 1_000 + 0.5 + 3 * self._chance.random()
                self._is_paused(each, each.member, int(long_s * SECOND_US))
                if place.instance_id is None and place.group_id == each.group_id:
                    self._leaves(place, member, for_us)
                return

    def _comes_back_soon(self, place: _Place, member: Member, for_us: int) -> None:
        """A static member is started again, and right after it whoever coordinates its group."""
        del for_us
        if place.instance_id is not None:
            self._dies(place, member, SECOND_US // 5)
            self._world.scheduler.at(2 * SECOND_US, partial(self._move_before_all_is_well, place.group_id))

    def _move_before_all_is_well(self, group_id: str) -> None:
        if self._settled_us is None:
            self._move(group_id)

    def _come_back(self, place: _Place) -> None:
        if self._settled_us is None:
            self._revive(place)

    def _note(self, member: Member, words: str) -> None:
        self._world.note("fault", member.process.name, words)
