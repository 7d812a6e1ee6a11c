"""Leaders, followers and the high watermark: what a replica does once the controller has said what it is.

`replica_manager` is the face; `control` applies orders, `produce`, `fetch` and `offsets` serve clients and
followers, `hosting` knows the partitions, `purgatory` keeps what waits, `isr_maintenance` proposes ISR changes.
`partition` is one of them: pure, without a clock, a thread or a socket; `followers` is what its leader knows of others.
`directory_moves` copies replicas between log directories of this broker, like a follower of the replica itself.

Comes in:   values of `api` and of `regency.kafka.fetching.values`.
Goes out:   results through callbacks that run after the state has changed (`purgatory`), ISR changes, log writes.
Hands out:  ReplicaManager.
Imports:    `log`; ZooKeeper, TCP and threads are behind ports (`broker_agent.ports`), but for the fetcher threads.
Threads:    the data loop. Passive: time and answers are given to it.
"""
