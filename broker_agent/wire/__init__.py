"""Kafka's protocol as bytes: the only package that imports kafka-python's codec."""
