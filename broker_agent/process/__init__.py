"""The agent as a process: its data loop, what watches it, and the controller that runs as its child.

Comes in:   functions posted from any thread; the child's end; time.
Goes out:   calls on the data loop, one after the other; an end of the process where going on would be worse.
Hands out:  DataLoop, LoopMeter, Watchdog, the child's supervisor, PatientWorker for work that may wait.
Imports:    `ports` and `regency.runtime` only: nothing here knows what a replica is.
Threads:    the loop's own, the watchdog's, the patient worker's; all meet on the data loop.
Rule:       a watchdog that sees the loop stand still says so with all stacks, before a session is lost by it.
Tests:      tests/unit/agent; a loop that stands still is tried in tests/hostile.
"""
