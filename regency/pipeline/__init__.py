"""Spark reads, writes and audits the cluster: the connector, `format("regency")`, and the jobs of `regency pipeline`.

Imported by those alone who installed regency[pipeline]: nothing else in Regency imports this package at start.
"""
