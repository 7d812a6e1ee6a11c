"""Metrics and probes of a controller process.

Comes in:   scrapes and probes, on threads of the HTTP endpoint.
Goes out:   families; /livez and /readyz.
How:        from copies (`state.topic_copies`) and counters (`store.counters`): the controller's thread is not asked.
Hands out:  the families and probes that `__main__` registers; `meters` times each event.
Imports:    the controller from above.
Names:      every metric's name and help stand in `regency.runtime.metrics.table_controller`.
Cost:       series per topic are bounded by regency.controller.metrics.max.partitions.
"""
