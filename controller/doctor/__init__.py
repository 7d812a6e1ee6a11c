"""Examination: do ZooKeeper, the ruling controller and the agents agree? And the cluster at a glance.

`rules` compares and names what differs; `examination` gathers the three pictures; `summary` tells of health.

Comes in:   questions of people; copies that the controller's thread makes in small pieces (`controller.copies`).
Goes out:   findings and summaries. Nothing is changed.
Imports:    the controller from above; nothing imports this room but `admin` and `__main__`.
Threads:    gRPC's.
Rule:       what differs is looked at twice before it is told: news is always on its way.
"""
