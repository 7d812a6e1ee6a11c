"""From decision to wire: what each broker shall do, and the conversation that makes it so.

`request_batch` gathers what an event decided, as rows of topics; `slots` holds what a
broker shall do and has not confirmed, one slot with a state per partition; `sender` repeats it until it is confirmed,
newest content first; `messages` has the rows, and alone turns them into messages; `metadata` numbers metadata changes.

Comes in:   leaderships and deletions of an event that has been committed to ZooKeeper.
Goes out:   LeaderAndIsr, StopReplica, UpdateMetadata over gRPC; questions for log ends; answers as events.
Hands out:  RequestBatch, Channels, ControllerChannelManager.
Imports:    `state` to read assignments; nothing that decides.
Threads:    one sender per broker; the controller's thread never waits for one.
"""
