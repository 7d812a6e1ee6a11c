"""`regency groups`: list and describe consumer groups, reset and delete their offsets, delete them.

Comes in:   names of groups and topics, places to go on from.
Goes out:   requests to the groups' coordinators; tables, JSON, CSV.
Hands out:  `command.groups`.
Imports:    `asking`.
Files:      `coordinators` finds and asks them, `facts` has what they tell; `command` shows it, `resetting` and
            `removing` change it.
Rule:       offsets of a group with members are its members' to change: a command refuses.
Tests:      tests/unit/cli; against a cluster in tests/integration/system.
"""
