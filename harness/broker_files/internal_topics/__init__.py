"""Decode and describe the records of internal topics: of coordinators, Connect, Schema Registry and Streams."""
