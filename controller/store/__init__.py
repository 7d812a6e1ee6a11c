"""The controller's verbs in ZooKeeper: each a read or a fenced write of one subject.

`access` is the session with the fence (check /controller_epoch in every multi), and waits while ZooKeeper is away;
`elector` the race for /controller.

Comes in:   what is to be read or written.
Goes out:   multis that fail once another controller rules; results per znode, with why.
Hands out:  ClusterStore, StoreAccess, Elector, and a module of verbs per subject.
Imports:    `regency.runtime.zookeeper` and the codecs of `regency.model.znodes`; nothing of the controller's state.
Rule:       a lost reply is settled by reading: every verb may run twice.
"""
