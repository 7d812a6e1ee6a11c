"""What the benches of the data path share: real clusters, confluent-kafka clients, and what processes use."""
