"""Spark's own Kafka connector and Regency's, given the same cases on the same cluster."""
