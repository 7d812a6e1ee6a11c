"""How commands ask a cluster: one place for connections, time limits, and the words when nothing answers.

`wire` is the one client: Kafka's protocol to brokers, gRPC to controllers. `config_requests` has settings, `deletions`
whether a topic is being deleted, `refusals` error codes as sentences.

Comes in:   addresses, and what a command wants to know.
Goes out:   answers, or CommandFailed with what to do next.
Imports:    `regency.clients` and `regency.kafka`; no other room of the command line.
Tests:      tests/unit/cli; with brokers that are paused in tests/integration/system.
"""
