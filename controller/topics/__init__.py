"""Topics that are made, grown, deleted, or whose settings change.

Comes in:   TopicsChanged, AssignmentsChanged, DeletionsAsked, ConfigsChanged; requests of clients.
Goes out:   topic znodes and settings, transitions of the machines, answers.
Hands out:  the handlers that `routes` names; `topics.take_in`, which reads topics again.
Imports:    `reassignment`, the term, the machines.
Rules:      a topic id is made once; what was made outside, by Kafka's tools in ZooKeeper, is taken in all the same;
            a
            name that is being deleted is not made again before it is gone.
Threads:    the controller's.
"""
