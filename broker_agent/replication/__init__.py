"""Roles, high watermarks, in-sync replicas, fetchers. Passive: threads stand at the edge."""
