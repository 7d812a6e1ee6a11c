"""Leaders, followers and the high watermark: what a replica does once the controller has said what it is.

`replica_manager` is the face; `control` applies orders, `produce`, `fetch` and `offsets` serve clients and
followers,
`hosting` knows the partitions, `purgatory` keeps what waits, `isr_maintenance` proposes ISR changes.

Comes in:   values of `api` and of `regency.kafka.fetching.values`.
Goes out:   results through callbacks that run after the state has changed (`completions`), ISR changes, log writes.
Hands out:  ReplicaManager.
Imports:    `log`; ZooKeeper, TCP and threads are behind ports (`broker_agent.ports`), but for the fetcher threads.
Threads:    the data loop. Passive: time and answers are given to it.
"""
