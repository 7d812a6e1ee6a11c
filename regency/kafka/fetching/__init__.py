"""Fetch and ListOffsets as facts, their place in a session, and their form on the wire.

Comes in:   what is wanted of which partition, and a plan that bounds it (`values`).
Goes out:   requests and answers of Kafka (`wire`).
Hands out:  FetchPartition, FetchedPartition, ClientFetchSession (KIP-227, the side of who fetches), fetch_request.
Imports:    the codec beside it; no thread, no socket.
Is used by: the agent's fetchers and its leader's side, and by clients that read replicas.
The leader's side of a session is `regency.broker_agent.replication.fetch_sessions`.
Tests:      tests/unit/replication, tests/unit/wire.
"""
