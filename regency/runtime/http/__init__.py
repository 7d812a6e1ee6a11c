"""The HTTP endpoint of a daemon: metrics and probes. Nothing here is on the way of data.

`server` has the routes and their threads, `lobby` the connections that have not asked yet, bounded in number, bytes
and
seconds; `exposition` makes Prometheus' text; `probes` /livez and /readyz.

Comes in:   GET and HEAD of monitoring, and of anyone who finds the port.
Goes out:   short answers.
Hands out:  `probes.daemon_server`, `probe_file`.
Imports:    `metrics` for families.
"""
