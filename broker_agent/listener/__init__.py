"""Kafka's protocol on TCP: connections, frames, the order of answers, and limits that no client gets around.

A connection reads frames, an exchange holds a request until its answer is sent, `apis` does the work.
Descriptors (`places`), memory of requests and answers (`buffers`), and time on the loop (`turns`) are bounded here.

Comes in:   bytes of clients and followers.
Goes out:   answers in the order of the requests of each connection; counts for metrics (`stats`).
Hands out:  `server.KafkaListener`, which has the table of handlers.
Imports:    `control` (metadata, forwarding), `replication` and `registry`; never `agent` or `assembly`.
Threads:    all of it on the data loop, except what `turns.Aside` computes for large answers.
"""
