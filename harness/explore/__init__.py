"""Models of compaction, explored: without a broker, and without waiting for a clock."""
