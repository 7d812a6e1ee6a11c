"""Deliberate defects, by name: what the simulation must be able to find. Test-only; production has no such switches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from simulation.defects import administration_defects, agent_defects, controller_defects, reconcile_defects
from simulation.defects.patching import Defect, Patch

DEFECTS: dict[str, Defect] = {
    defect.name: defect
    for defect in (
        *controller_defects.DEFECTS,
        *administration_defects.DEFECTS,
        *reconcile_defects.DEFECTS,
        *agent_defects.DEFECTS,
    )
}
"""Every defect that is to be found, in the order of the table."""

UNSEEN: dict[str, Defect] = {
    defect.name: defect for defect in (*controller_defects.UNSEEN, *reconcile_defects.UNSEEN, *agent_defects.UNSEEN)
}
"""Those that are planted in vain."""

BECAUSE: dict[str, str] = {**controller_defects.BECAUSE, **reconcile_defects.BECAUSE, **agent_defects.BECAUSE}
"""Why they are."""


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
