"""The HTTP endpoint of a daemon: metrics and probes. Nothing here is on the way of data.

`server` bounds the connections, bytes and seconds of the standard library's HTTP; `probes` answers /metrics, /livez,
/readyz and /debug/threads.

Comes in:   GET and HEAD of monitoring, and of anyone who finds the port.
Goes out:   short answers.
Hands out:  `probes.daemon_server`, `probe_file`.
Imports:    `metrics` for families.
"""
