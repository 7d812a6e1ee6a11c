"""Facts, names and formats that every layer may import.

`ids` has the types of everything that has a number; `facts` brokers, partitions, leaderships; `kafka_errors` the
codes;
`clock` the port for time; `crash_points` where the simulation may end a process; `errors` the base of what is
raised.

Comes in:   nothing. Goes out: nothing.
Hands out:  types, and pure functions on them.
Rooms:      `settings`, every key with type, range and default; `znodes`, paths and content of every znode.
Imports:    nothing of ours, and no I/O.
"""
