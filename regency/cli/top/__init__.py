"""`regency top`: the cluster at a glance, drawn again and again.

Comes in:   answers of the ruling controller and of brokers (`asking`), keys.
Goes out:   a screen (`screen`), or one snapshot as JSON.
Hands out:  `command.top`.
Imports:    `regency.cli.asking`'s wire.
Order:      asking > reading > snapshot; `screen` draws it; `command` has the terminal and the thread that asks.
Rule:       a cluster that does not answer is drawn as such; the screen never stands still.
Tests:      tests/unit/cli/top.
"""
