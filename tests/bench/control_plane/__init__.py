"""A control plane to measure: real ZooKeeper, real controller processes, and agents that only answer."""
