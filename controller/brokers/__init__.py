"""Brokers that come, go, restart, fail in part, report, or are to leave.

`membership` handles starts, failures and bounces; `leaving` what operators ask; `notifications` what agents tell by
znodes; `agent_troubles` answers that say the picture is wrong; `reconcile`
compares what agents report with what they shall host.

Comes in:   BrokersChanged, IsrsChanged, LogDirsFailed, AgentTroubled, ReconcileDue, requests.
Goes out:   transitions of the machines, decision records, orders through the term's batch.
Imports:    `topics`, `reassignment` and the term; nothing of `elections`, which stands above.
Threads:    the controller's.
"""
