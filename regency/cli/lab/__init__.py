"""The lab on this machine: up, down, status, demo, and the daemons in the foreground.

Comes in:   a directory, ports, a number of brokers.
Goes out:   processes (`regency.cluster`), their state, the demonstration's report.
Hands out:  the commands `up`, `down`, `status`, `demo`, `zookeeper`, `agent`.
Imports:    `regency.cluster` and `regency.demo`.
Files:      `cluster` starts, ends and shows one; `daemons` has the two that stay in the foreground.
Rule:       a lab belongs to one directory; two commands on it wait for each other.
Tests:      tests/unit/cluster, tests/integration/cluster.
"""
