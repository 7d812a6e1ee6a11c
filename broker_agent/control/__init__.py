"""What the controller says to this agent, and what the agent says to the controller.

`service` takes LeaderAndIsr, StopReplica and UpdateMetadata; `gate` refuses what is of an older controller or meant
for an earlier incarnation; it and `follower_epochs` ask ZooKeeper before a new epoch is believed.

Comes in:   control requests over gRPC; admin requests of Kafka clients that only the controller may answer.
Goes out:   orders to the ReplicaManager and `metadata_cache`; reports of replicas; forwarded admin requests.
Hands out:  ControlService, MetadataCache, AdminForwarder, Reporter, the agent's side of a controlled shutdown.
Imports:    `replication` for what it orders, never `listener`, which reads the metadata cache from above.
Threads:    gRPC's and one reporter's; whatever changes replicas is posted to the data loop.
"""
