"""Kafka's protocol served to clients and followers, on the data loop."""
