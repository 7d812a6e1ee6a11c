"""One handler per Kafka API: a request in, an answer out, with Kafka's error codes.

A homogeneous set: each module has the versions, the checks and the answer of one API (`listener.server` lists them
all), and follows one pattern, so that a new API is a new file and a line there. `forwarded` is all that the controller
answers (`regency.kafka.apis.FORWARDED`).

Comes in:   decoded requests (`regency.kafka.codec`) with the exchange they belong to.
Goes out:   calls of the ReplicaManager, of the metadata cache, or of the controller through the forwarder; an
            answer.
Hands out:  `handle` and `failure` of each API. `services` is what all of them may use.
Imports:    the listener's `exchange`; a handler imports no other handler but for shared rows.
Blocks:     never; long work yields between turns.
"""
