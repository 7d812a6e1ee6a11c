"""Adapters to the world: one room or file for each thing that can fail outside of us.

`zookeeper` a session, `grpc` channels and servers, `http` the endpoint of a daemon, `metrics` counters and text,
`disk` files as a port, `descriptors` their limits; settings files, logging, threads that end the process when they die.

Comes in:   bytes, signals, limits of the machine.
Goes out:   bytes; errors with what to do next.
Imports:    `regency.model` and protos. Nothing here knows what a partition is for.
Replaced:   in the simulation, which puts its own ZooKeeper, gRPC, disk and threads in these places.
"""
