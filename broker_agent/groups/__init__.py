"""The group coordinator, classic protocol of Kafka 3.9: members, generations, committed offsets.

`shard` has all groups of one partition of `__consumer_offsets`; `group` is one of them: its generations, with its
`membership` and `offsets`; `context` has states and what groups share, `timers` their deadlines. All are pure: a call
takes the time and gives `Effects`: answers to send, and records to append, after which it is called again.
`coordinator` stands at the edge: it owns a shard for each partition that this broker leads, loads it from the log in
slices when the broker becomes leader, drops it when the broker is leader no more, appends and answers.

Comes in:   requests as values of `api`; leaderships of `__consumer_offsets`; the clock.
Goes out:   answers through callbacks, records appended through the ReplicaManager.
Hands out:  `coordinator.GroupCoordinator` to the listener's handlers.
Imports:    `control` (metadata), `replication`; record formats of `regency.kafka`. Never the listener.
Threads:    the data loop. Passive: time and answers are given to it.
"""
