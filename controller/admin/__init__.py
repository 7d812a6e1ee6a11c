"""The gRPC faces of a controller: what operators, clients and agents ask of it.

`forwarded` decodes what Kafka's clients ask through agents and answers in Kafka's bytes; `services` has what our own
tools, agents and people ask. Each request becomes an event, waits at the request gate, and is answered.

Comes in:   gRPC calls, on gRPC's threads.
Goes out:   requests for the controller's thread; answers, with Kafka's error codes.
Hands out:  the services that `__main__` registers.
Imports:    `request_gate`, the events of the rooms below, and `regency.kafka` for the envelopes. Nothing imports this
            room but `__main__`.
Rule:       no decision is made here: a check that matters is made again on the controller's thread.
"""
