"""What takes the fence away, from one kind of write at a time or from all: the enumeration must find each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from regency.broker_agent.control.service import ControlService
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Check, Op
from simulation.defects import DEFECTS, UNSEEN
from simulation.defects.patching import Patch
from simulation.paused.reach import Verb, verb_of, writing_verbs
from simulation.zookeeper.session_port import SimZkSession
from simulation.zookeeper.session_state import Call

WITHOUT_OFFICE: Final = {
    "store.elector._create": "creates what is missing before there is an office, and nothing where it is there",
    "store.elector._race": "is no write of a ruler: it creates /controller, which fails while somebody has it",
}
"""Functions whose writes nothing fences, and why."""

DEFECTS_OF_FENCES: Final = ("unfenced-writes", "newer-epoch-adopted", "any-controller-epoch")
"""Defects of the simulation that take fences away: of all writes, or at agents."""


class Breaker(NamedTuple):
    """Takes a fence away. `verb`: what has to be under way when the controller is paused; empty for anything."""

    name: str
    verb: str
    plant: Callable[[Patch], None]


def breakers() -> list[Breaker]:
    """One of every function that writes, one of what agents do aside, and the defects."""
    fenced = sorted(verb for verb in writing_verbs() if str(verb) not in WITHOUT_OFFICE)
    known = {**DEFECTS, **UNSEEN}
    return [
        *(Breaker(f"unfenced-{verb}", str(verb), partial(_unfence, verb)) for verb in fenced),
        Breaker("shut-down-for-anybody", "ShutDown", _shut_down_for_anybody),
        *(Breaker(name, "", known[name].plant) for name in DEFECTS_OF_FENCES),
    ]


def _unfence(verb: Verb, patch: Patch) -> None:
    """Where this function writes, it checks whatever version /controller_epoch has when that is sent.

    Not that there is no check at all: the invariants see that wherever nobody is paused.
    """
    submit = SimZkSession._submit_multi

    def adopting(self: SimZkSession, ops: Sequence[Op], generation: int | None) -> Call:
        epoch = self._connector._ensemble.read(paths.CONTROLLER_EPOCH)
        if epoch is not None and verb_of(sys._getframe(1)) == verb:
            ops = [_with_version(op, epoch.stat.version) for op in ops]
        return submit(self, ops, generation)

    patch.set(SimZkSession, "_submit_multi", adopting)


def _with_version(op: Op, version: int) -> Op:
    is_fence = isinstance(op, Check) and op.path == paths.CONTROLLER_EPOCH
    return msgspec.structs.replace(op, version=version) if is_fence else op


def _shut_down_for_anybody(patch: Patch) -> None:
    patch.edit(ControlService, "shut_down", ("if refused is not None:", "if False:"))
