"""Kafka: the usage log, its topics, and the unpacking of what comes from it."""
