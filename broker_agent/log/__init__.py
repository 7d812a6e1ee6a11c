"""One partition's log in Kafka's files, and the directories that hold many of them."""
