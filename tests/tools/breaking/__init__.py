"""What breaks a real cluster, and watches it, for tests: a TCP proxy with faults, seeded plans, readers and checks."""
