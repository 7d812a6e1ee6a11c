"""What must hold of a simulated cluster: after every step, at every ZooKeeper transaction, and when all has healed."""
