"""Starts ZooKeeper and agents as processes, and breaks them on request. Imports neither daemon."""
