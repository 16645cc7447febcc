"""The metadata log: its copies and records, and the history of partitions and brokers."""
