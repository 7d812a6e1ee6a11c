"""Kafka's protocol on TCP: connections, frames, the order of answers, and limits that no client gets around.

A connection reads frames (`framing`), an exchange holds a request until its answer is sent, `apis` does the work.
Descriptors, memory of requests (`incoming`), of answers (`unsent`), and time on the loop (`turns`) are bounded here.

Comes in:   bytes of clients and followers.
Goes out:   answers in the order of the requests of each connection; counts for metrics (`stats`, `timing`).
Hands out:  `server.KafkaListener`; `ports` says what it needs of the rest of the agent.
Imports:    `control` (metadata, forwarding) and `replication` through `ports`; never `agent` or `assembly`.
Threads:    all of it on the data loop, except what `aside` computes for large answers.
"""
