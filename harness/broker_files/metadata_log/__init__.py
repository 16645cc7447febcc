"""The metadata log: copies, records, and the history of partitions and brokers."""
