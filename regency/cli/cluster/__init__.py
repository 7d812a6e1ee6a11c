"""The cluster as a whole: health, who rules, doctor, leaders, settings, and what was decided.

Comes in:   options; nothing here starts or stops anything but for `controllers`, which can have another one rule.
Goes out:   verdicts with an exit status, decision records in words (`explain`, history).
Hands out:  the commands `cluster`, `controller`, `doctor`, `leaders`, `configs`, `explain`, `history`.
Imports:    `asking`.
Files:      a module per command.
Rule:       a verdict is data, on stdout.
Tests:      tests/unit/cli.
"""
