"""One partition on this broker: its role, its followers' progress, its ISR and its high watermark.

Pure state: `isr_state` has the ISR that is committed and the one that is proposed (KIP-497), `replica` what a leader
knows of a follower, `rules` what the settings say. Nothing here has a clock, a thread or a socket.

Comes in:   LeaderAndIsr states, fetch positions of followers, answers to ISR writes.
Goes out:   the high watermark, ISR changes to propose, appends to the log.
Hands out:  Partition, RemoteReplica, ReplicationRules, Role.
Imports:    `regency.broker_agent.log` for its own log.
"""
