"""`regency verify replicas`: whether all replicas of a topic hold the same."""
