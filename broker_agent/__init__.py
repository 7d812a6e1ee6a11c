"""The broker agent: one process that keeps replicas in log files, copies them from leaders and serves Kafka's clients.

What happens is decided on one thread, the data loop (`process`); everything else is passive or stands at its edge.

Comes in:   Kafka requests at `listener`, orders of the controller at `control`, records of leaders at `replication`.
Goes out:   answers, fetches to leaders, ISR writes and the registration in ZooKeeper (`registry`), reports.
Hands out:  `agent.Agent`, which starts and stops the process's parts; `assembly` puts them together.
Rooms:      agent > metrics > assembly, listener > groups > control > replication > log, registry, process > ports,
            steps.
Imports:    `regency.kafka` and what is below it. Nothing of the controller: they speak over gRPC and ZooKeeper only.
Is imported as regency.broker_agent; this folder is a link's target so that the repository shows it at its top.
"""
