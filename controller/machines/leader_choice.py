"""Who leads a partition: the rules of `state.election` given what is known, what settings allow, and how far logs go.

Settings are read when they are needed. Where several replicas out of sync may lead, none is elected before they have
been asked whose log is the longest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice

import msgspec

from regency.controller.machines.state_machine import Failed
from regency.controller.state.context import ControllerContext
from regency.controller.state.election import (
    Election,
    ElectionKind,
    LogEnd,
    Recovery,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_restarted,
    elect_unclean,
    elect_without_state,
)
from regency.controller.store.cluster_store import ClusterStore
from regency.controller.store.configs import read_configs
from regency.model.facts import LeaderAndIsr
from regency.model.ids import BrokerId, TopicPartition
from regency.model.znodes.paths import EVERY_BROKER

logger = logging.getLogger(__name__)

UNCLEAN_KEY = "unclean.leader.election.enable"

Elect = Callable[
    [Sequence[BrokerId], Sequence[BrokerId], Collection[BrokerId], Mapping[BrokerId, LogEnd | None]], Election
]
"""Elects by assignment, ISR, who is online, and how far logs go."""


class LeaderChoice:
    """Chooses leaders in one controller epoch, for the controller of `broker`, whose file says `unclean_default`."""

    def __init__(
        self, context: ControllerContext, store: ClusterStore, broker: BrokerId, *, unclean_default: bool
    ) -> None:
        self._context = context
        self._store = store
        self._broker = broker
        self._default = unclean_default
        self._undecided: dict[TopicPartition, bool] = {}

    def take_undecided(self) -> dict[TopicPartition, bool]:
        """Partitions that any of several replicas out of sync may lead, and whether that was asked for by `unclean`.

        Who of them has the longest log must be asked first. They are forgotten here.
        """
        undecided, self._undecided = self._undecided, {}
        return undecided

    def decide(
        self, partitions: Sequence[TopicPartition], failed: Failed, *, kind: ElectionKind, unclean: bool
    ) -> dict[TopicPartition, Election]:
        """Elect for each that has a state, by the rule of `kind`; `failed` gets why the others have no leader."""
        elections: dict[TopicPartition, Election] = {}
        without_isr = []
        for partition in partitions:
            leadership = self._context.leadership(partition)
            if leadership is None:
                failed[partition] = "it has no state znode"
                continue
            election = self._elect_one(partition, leadership.leader_and_isr, kind)
            if election.leader is not None:
                elections[partition] = election
                continue
            failed[partition] = election.why
            if kind not in (ElectionKind.OFFLINE, ElectionKind.LONGEST_LOG):
                continue
            if not self._may_be_restarted(partition, leadership.leader_and_isr):
                without_isr.append(partition)
            elif (leader := self._elect_longest(partition, kind, elect_restarted, forced=unclean)) is not None:
                elections[partition] = leader
                del failed[partition]
        for partition in without_isr if unclean else self._allowed(without_isr):
            leader = self._elect_longest(partition, kind, elect_unclean, forced=unclean)
            if leader is not None:
                elections[partition] = leader
                del failed[partition]
        return {each: self._without_restarted(each, election) for each, election in elections.items()}

    def _without_restarted(self, partition: TopicPartition, election: Election) -> Election:
        """The same leader with an ISR that hides no restart. Who leads out of sync leads alone, restarted or not."""
        isr = self._context.steady(partition, election.isr)
        if isr == election.isr or election.leader not in isr:
            return election
        return msgspec.structs.replace(election, isr=isr)

    def recover(
        self, partitions: Sequence[TopicPartition], failed: Failed, *, kind: ElectionKind, forced: bool
    ) -> dict[TopicPartition, Recovery]:
        """Choose by logs; ask about them first. Who is not heard may have more: then it takes leave, as out of sync."""
        context = self._context
        chosen: dict[TopicPartition, Recovery] = {}
        for partition in partitions:
            inquiry = context.inquiries.get(partition)
            if kind is not ElectionKind.LONGEST_LOG or inquiry is None:
                self._undecided[partition] = forced or self._undecided.get(partition, False)
                failed[partition] = "it has no state znode: its replicas are being asked for logs of it"
                continue
            replicas, online = context.assignment(partition).replicas, context.online(partition)
            chosen[partition] = elect_without_state(replicas, online, inquiry.ends)
        risky = {partition: recovery for partition, recovery in chosen.items() if recovery.unheard}
        for partition in self._allowed(list(risky)):
            del risky[partition]
        for partition, recovery in risky.items():
            del chosen[partition]
            failed[partition] = (
                f"its state znode is lost, and replicas {list(recovery.unheard)}, of which nothing is heard, may have "
                "the longest log; an unclean election that is asked for does without them"
            )
        for partition in islice(risky, 1):
            logger.error("%d partitions wait, such as %s: %s", len(risky), partition, failed[partition])
        return chosen

    def _may_be_restarted(self, partition: TopicPartition, now: LeaderAndIsr) -> bool:
        """Whether a member of the ISR lives and none can return with more: all restarted after a loss."""
        online, unsure = self._context.online(partition), self._context.unsure_members(partition)
        return set(unsure).issuperset(now.isr) and any(member in online for member in now.isr)

    def _elect_longest(
        self, partition: TopicPartition, kind: ElectionKind, elect: Elect, *, forced: bool
    ) -> Election | None:
        """Elect by how far logs go; None where no replica can be, or where replicas must be asked first."""
        context = self._context
        replicas, isr = context.assignment(partition).replicas, context.isr(partition)
        online = context.online(partition)
        unsure = context.unsure_members(partition)
        if any(member in online and member not in unsure for member in isr):
            return None  # not assigned: nothing but a reassignment or a strange hand does that
        if kind is not ElectionKind.LONGEST_LOG and sum(replica in online for replica in replicas) > 1:
            self._undecided[partition] = forced or self._undecided.get(partition, False)
            return None
        inquiry = context.inquiries.get(partition)
        election = elect(replicas, isr, online, {} if inquiry is None else inquiry.ends)
        return None if election.leader is None else election

    def _elect_one(self, partition: TopicPartition, now: LeaderAndIsr, kind: ElectionKind) -> Election:
        context = self._context
        assignment = context.assignment(partition)
        online, former = context.online(partition), context.former_members(partition)
        unsure = (*context.unsure_members(partition), *former)
        match kind:
            case ElectionKind.OFFLINE | ElectionKind.LONGEST_LOG:
                return elect_offline(assignment.replicas, now.isr, online, unsure)
            case ElectionKind.PREFERRED:
                return elect_preferred(assignment.replicas, now.isr, online, unsure)
            case ElectionKind.CONTROLLED_SHUTDOWN:
                live = set(context.online(partition, including_shutting_down=True)).difference(former)
                return elect_for_shutdown(assignment.replicas, now.isr, live, context.shutting_down)

    def _allowed(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Those with a live replica whose settings allow a leader out of sync; settings that cannot be read do not.

        A partition for which an unclean election was asked needs no leave.
        """
        context = self._context
        able = [each for each in partitions if not context.usable.isdisjoint(context.assignment(each).replicas)]
        forced = {each for each in able if (inquiry := context.inquiries.get(each)) is not None and inquiry.forced}
        topics = sorted({partition.topic for partition in able if partition not in forced})
        said = dict(zip(topics, self._said([f"topics/{topic}" for topic in topics]), strict=True))
        default = None in said.values() and self._by_default()
        allowing = {topic for topic, leave in said.items() if leave or (leave is None and default)}
        return [partition for partition in able if partition in forced or partition.topic in allowing]

    def _by_default(self) -> bool:
        """What holds for topics that say nothing: the settings of this broker, of all brokers, then of the file."""
        said = self._said((f"brokers/{self._broker}", f"brokers/{EVERY_BROKER}"))
        return next((leave for leave in said if leave is not None), self._default)

    def _said(self, entities: Sequence[str]) -> list[bool | None]:
        """What settings of these say themselves; None: nothing. Those that cannot be read allow nothing."""
        stored = read_configs(self._store.access, entities)
        return [_leave(stored[entity].config) for entity in entities]


def _leave(config: Mapping[str, str] | None) -> bool | None:
    if config is None:
        return False
    value = config.get(UNCLEAN_KEY)
    return None if value is None else value.strip().lower() == "true"
