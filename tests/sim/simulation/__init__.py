"""Deterministic simulation of a Regency cluster: production code, virtual time, one seed."""
