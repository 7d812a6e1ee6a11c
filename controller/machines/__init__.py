"""What changes the state of partitions, replicas and topics: Kafka's state machines.

Every transition has legal predecessors (`state.states`), is written first (fenced), then taken into the context,
then put into the batch: what both machines share is `state_machine`. `leader_choice` finds a leader; `topic_deletion`
drives both machines; `inquiries` asks for log ends where a leader needs them.

Comes in:   "bring these partitions into that state", from the rooms above.
Goes out:   state znodes through `store`, the context, the batch, decision records.
Hands out:  PartitionStateMachine, ReplicaStateMachine, TopicDeletionManager, Inquiries.
Imports:    `store`, `channel`, `state`; no handler, and not the term.
Threads:    the controller's.
"""
