"""Deliberate defects, by name: what the simulation must be able to find. Test-only; production has no such switches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from simulation.defects import (
    administration_defects,
    agent_defects,
    compaction_defects,
    controller_defects,
    group_defects,
    reconcile_defects,
)
from simulation.defects.patching import Defect, Patch
from simulation.shape import Shape

DEFECTS: dict[str, Defect] = {
    defect.name: defect
    for defect in (
        *controller_defects.DEFECTS,
        *administration_defects.DEFECTS,
        *reconcile_defects.DEFECTS,
        *agent_defects.DEFECTS,
        *group_defects.DEFECTS,
        *compaction_defects.DEFECTS,
    )
}
"""Every defect that is to be found, in the order of the table."""

UNSEEN: dict[str, Defect] = {
    defect.name: defect for defect in (*controller_defects.UNSEEN, *agent_defects.UNSEEN, *group_defects.UNSEEN)
}
"""Those that are planted in vain."""

BECAUSE: dict[str, str] = {**controller_defects.BECAUSE, **agent_defects.BECAUSE, **group_defects.BECAUSE}
"""Why they are."""


_OF_RECONCILE = frozenset(defect.name for defect in reconcile_defects.DEFECTS)


_OF_GROUPS = frozenset(defect.name for defect in group_defects.DEFECTS)


_OF_COMPACTION = frozenset(defect.name for defect in compaction_defects.DEFECTS)


def exposing(shape: Shape, name: str) -> Shape:
    """The run that a defect of this name is looked for in: a reconcile, unless it is one of that, would mend what it
    leaves wrong; and there are groups where it is one of groups, keys where it is one of compaction, and else neither.
    Where the name is empty, the run as it is.
    """
    if not name:
        return shape
    shape = shape._replace(grouped=name in _OF_GROUPS and shape.possible_groups is not None)
    shape = shape.with_keys() if name in _OF_COMPACTION else shape.without_keys()
    return shape.reconciled() if name in _OF_RECONCILE else shape.unreconciled()


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Inside, production code has the defect of this name; none where it is empty. Raises KeyError."""
    if not name:
        yield
        return
    patch = Patch()
    try:
        (UNSEEN[name] if name in UNSEEN else DEFECTS[name]).plant(patch)
        yield
    finally:
        patch.undo()


SEEDS = 50
"""Of the deep profile: within so many a defect is to be caught."""
