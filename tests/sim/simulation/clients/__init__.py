"""Simulated Kafka clients: producers and consumers that behave as Kafka's do, and write down what they saw."""
