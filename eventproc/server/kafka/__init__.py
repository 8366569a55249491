"""Kafka's protocol over the topics of one scope."""
