"""Regular expressions for the words of decisions about partitions, the same in Python and in Java. No Spark.

A number is an id or an epoch: what is none, or longer than any, is not known.
"""

from __future__ import annotations

NUMBER = r"\d{1,10}"
NUMBERS = r"([\d, ]*)"
"""What stands in the brackets of a list, also of an empty one. No group that repeats: Java recurses for each time."""
LEADER_BEFORE = rf"^leader (-?{NUMBER}),"
ISR_BEFORE = rf"isr \[{NUMBERS}\]"
EPOCH_BEFORE = rf"leader epoch ({NUMBER})$"

MOVED = rf"^replicas \[{NUMBERS}\] instead of \["
"""Why, of a reassignment that is done: all replicas."""
MOVING = rf"^from \[[^\]]*\] to \[{NUMBERS}\], adding \[[^\]]*\], removing \[{NUMBERS}\]"
"""Why, of a reassignment on its way: its target, and who is not of it; together all replicas."""
CHOSEN_OF = rf"replica of (?:the target )?\[{NUMBERS}\]"
"""Why, of an election: all replicas."""

REASSIGNMENTS = ("partition_reassignment", "alter_reassignments")
"""Events that only reassign: who leaves the ISR by them is no replica any more, whatever words they have."""
