"""What an agent tells of itself: metrics at a scrape, probes, readiness.

Comes in:   a scrape or a probe on a thread of the HTTP endpoint.
Goes out:   families (`regency.runtime.metrics`), answers of /livez and /readyz.
How:        rows are copied on the data loop (`replica_rows`), families are made of them elsewhere.
Hands out:  AgentMetrics of `source`, the probes.
Imports:    `assembly`'s parts, to look at them; nothing imports this room but `agent`.
Names:      every metric's name and help stand in `regency.runtime.metrics.table_agent`.
Cost:       a scrape may not hold the data loop for longer than a step of `regency.broker_agent.steps`.
"""
