"""A topic that is not there, in the one wording that all commands have: being deleted, misspelt, or never made."""

from __future__ import annotations

from difflib import get_close_matches

from regency.cli.asking.deletions import why_going
from regency.cli.asking.refusals import TopicMissing
from regency.cli.asking.wire import cluster_wire
from regency.cli.exits import CommandFailed, Exit


def explained(servers: str, missing: TopicMissing, *, creates: str = "") -> CommandFailed:
    """The error with what the cluster knows: how far a deletion is, or the name that was perhaps meant.

    `creates`: the words of the command with which it would be made, for commands that can.
    """
    going = why_going(servers, missing.topic)
    if going is not None:
        return CommandFailed(going, status=Exit.IN_PROGRESS)
    try:
        with cluster_wire(servers) as wire:
            names = [each.name for each in wire.topics()]
    except CommandFailed:
        return missing
    near = get_close_matches(missing.topic[:100], names, n=1, cutoff=0.6)
    hints = [f"Did you mean {near[0]}?"] if near else []
    hints += [creates] if creates else [] if near else [missing.hint]
    return CommandFailed(missing.message, hint=" ".join(hints))
