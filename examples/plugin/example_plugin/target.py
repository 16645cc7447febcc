"""Kafka 4.4 as a platform team runs it: with settings of brokers that differ from Kafka's defaults."""

from harness.targets import Target

TARGET = Target(
    "kafka-4.4-two-fetchers",
    "4.4.0",
    excluded_modules=("org.apache.kafka:kafka-tools-api",),
    broker_settings={"num.replica.fetchers": "2"},
    note="Kafka 4.4 with two fetchers for each pair of brokers",
)
