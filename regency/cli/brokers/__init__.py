"""`regency brokers`: list, describe, drain, shut down and forget brokers.

Comes in:   broker ids and options.
Goes out:   tables or JSON; requests to the ruling controller; plans that empty a broker.
Hands out:  `command.brokers`.
Imports:    `asking`; `partitions` for drain, which is a plan like any other.
Files:      `command` lists and describes; in `leaving` a broker is drained, ends, or is forgotten.
Rule:       what cannot be undone asks first, unless --yes says that it may.
Tests:      tests/unit/cli, tests/integration/system.
"""
