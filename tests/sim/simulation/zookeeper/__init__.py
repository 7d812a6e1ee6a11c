"""ZooKeeper in simulation: a model of an ensemble that a real server agrees with, and the session port over it."""
