"""Regular expressions for the words of decisions about partitions, by which the numbers in them are found.

A number is an id or an epoch: what is none, or longer than any, is not known.
"""

from __future__ import annotations

import re

NUMBER = r"\d{1,10}"
NUMBERS = r"([\d, ]*)"
"""What stands in the brackets of a list, also of an empty one."""
LEADER_BEFORE = re.compile(rf"^leader (-?{NUMBER}),", re.ASCII)
ISR_BEFORE = re.compile(rf"isr \[{NUMBERS}\]", re.ASCII)
EPOCH_BEFORE = re.compile(rf"leader epoch ({NUMBER})$", re.ASCII)

MOVED = re.compile(rf"^replicas \[{NUMBERS}\] instead of \[", re.ASCII)
"""Why, of a reassignment that is done: all replicas."""
MOVING = re.compile(rf"^from \[[^\]]*\] to \[{NUMBERS}\], adding \[[^\]]*\], removing \[{NUMBERS}\]", re.ASCII)
"""Why, of a reassignment on its way: its target, and who is not of it; together all replicas."""
CHOSEN_OF = re.compile(rf"replica of (?:the target )?\[{NUMBERS}\]", re.ASCII)
"""Why, of an election: all replicas."""

REASSIGNMENTS = ("partition_reassignment", "alter_reassignments")
"""Events that only reassign: who leaves the ISR by them is no replica any more, whatever words they have."""
