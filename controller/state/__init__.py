"""What a controller knows, and pure rules about it.

`context` is the picture of one term: brokers, assignments, leaderships, states. `election` has the rules of elections,
`states` the legal transitions, `reports` what agents say they host, `topic_copies` what other threads may read.

Comes in:   facts that the rooms above have read or decided.
Goes out:   answers to questions; nothing is written or sent from here.
Hands out:  ControllerContext, PartitionState, ReplicaState, the election functions, DecisionLog.
Imports:    `regency.model` and decision records (`regency.history`): no ZooKeeper, no gRPC, no clock of its own.
Threads:    the controller's, but for `reports` and `topic_copies`, which say so.
"""
