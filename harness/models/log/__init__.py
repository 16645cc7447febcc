"""One replica of a partition: its log, its cleaner, and the records that it delivers."""
