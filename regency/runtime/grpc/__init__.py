"""gRPC between the processes of a cluster.

`channels` are made again where a network has forgotten a connection, call with a limit of time and give errors with
words; `servers` bind, and refuse what is too large.

Comes in:   calls of the daemons and of the command line.
Goes out:   answers, or RpcFailed with whether the request may have arrived.
Hands out:  Channel options and keepalive, AgentControlClient and its sisters, a server.
Imports:    protos and `regency.model.errors`.
Rule:       no call without a deadline.
"""
