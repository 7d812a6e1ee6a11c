"""The controller: one candidate in every agent; the one that wins /controller decides for the cluster.

All decisions are made on one thread, event by event (`events`). An event comes from a watch, from an agent's answer
or from a request at `request_gate`; `routes` says which function handles it; `term.Term` is everything one reign knows,
and dies with it. What was decided is written to ZooKeeper fenced by the controller epoch, then handed to `channel`.

Comes in:   watches on ZooKeeper, answers and reports of agents, requests of operators and clients (`admin`).
Goes out:   state znodes (`store`), LeaderAndIsr, StopReplica and UpdateMetadata to agents (`channel`), decisions.
Hands out:  `controller.Controller`; `__main__` is the process.
Rooms:      admin > doctor > elections > brokers > topics > reassignment > machines > channel > store, state.
            pyproject.toml holds them to it.
Imports:    nothing of the broker agent: they speak over gRPC and ZooKeeper only.
"""
