"""Clients of a running cluster that the command line and the pipeline share: questions to single replicas."""
