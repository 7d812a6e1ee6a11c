"""The gRPC faces of a controller: what operators, clients and agents ask of it.

One module per subject; each turns a protobuf request into an event, waits at the request gate, and answers.

Comes in:   gRPC calls, on gRPC's threads.
Goes out:   requests for the controller's thread; answers, with Kafka's error codes.
Hands out:  the servicers that `__main__` registers (`rpcs`, `controller_service`).
Imports:    `request_gate` and the events of the rooms below. Nothing imports this room but `__main__`.
Rule:       no decision is made here: a check that matters is made again on the controller's thread.
"""
