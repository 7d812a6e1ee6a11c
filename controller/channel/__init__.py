"""From decision to wire: what each broker shall do, and the conversation that makes it so.

`request_batch` gathers what an event decided; `desired_state` is what a broker shall know and has not confirmed;
`sender` repeats it until it is confirmed, newest content first; `metadata_log` numbers metadata changes.

Comes in:   leaderships and deletions of an event that has been committed to ZooKeeper.
Goes out:   LeaderAndIsr, StopReplica, UpdateMetadata over gRPC; questions for log ends; answers as events.
Hands out:  RequestBatch, Channels, ControllerChannelManager.
Imports:    `state` to read assignments; nothing that decides.
Threads:    one sender per broker; the controller's thread never waits for one.
"""
