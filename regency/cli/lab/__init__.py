"""The lab on this machine: up, down, status, its verbs and logs, demo, and the daemons in the foreground.

Comes in:   a directory, ports, a number of brokers, targets of verbs.
Goes out:   processes (`regency.cluster`), their state and logs, the demonstration's report.
Hands out:  the commands `up`, `down`, `status`, `lab`, `logs`, `demo`, `zookeeper`, `agent`.
Imports:    `regency.cluster` and `regency.demo`.
Files:      `cluster` starts, ends and shows one; `verbs` breaks and repairs it; `logs` merges what its processes wrote;
            `daemons` has the two that stay in the foreground.
Rule:       a lab belongs to one directory; two commands that start something in it wait for each other.
Tests:      tests/unit/cluster, tests/unit/cli/test_cli_cluster.py, tests/integration/cluster.
"""
