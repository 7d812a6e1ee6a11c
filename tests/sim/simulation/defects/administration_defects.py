"""Defects of what administrators ask for: settings nobody hears of."""

from __future__ import annotations

from regency.controller import store_configs
from simulation.defects.patching import Defect, Patch


def _without_word(patch: Patch) -> None:
    patch.edit(store_configs, "write_configs", ("FencedItem((write, word))", "FencedItem((write,))"))


DEFECTS: tuple[Defect, ...] = (
    Defect(
        "settings-without-word",
        "Changed settings are written without a notification in /config/changes.",
        "reference section 1.7",
        _without_word,
    ),
)
