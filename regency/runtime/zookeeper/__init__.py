"""A ZooKeeper session: requests, watches, and what becomes of them when the connection or the session ends.

`session` is the port that everything else knows; `client` fulfils it: an I/O thread (`io`) moves bytes of one
connection (`link`), `core` has the state of the session and its watches, a thread of `client`'s calls back;
`fenced` writes multis that fail once a check does.

Comes in:   reads, multis, watches; bytes of a server.
Goes out:   results in order, or what is not known of them; events of watches and of the session.
Hands out:  `client.connect`, ZkSession, fenced_write.
Imports:    kazoo's wire records, nowhere else.
Replaced:   by the simulation's ensemble, at `session`.
"""
