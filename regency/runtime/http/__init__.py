"""The HTTP endpoint of a daemon: metrics and probes. Nothing here is on the way of data."""
