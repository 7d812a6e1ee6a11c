"""Adapters to the world: ZooKeeper session, gRPC, settings files, supervised loops. Only this package imports kazoo."""
