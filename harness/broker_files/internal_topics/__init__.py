"""Decode and describe the records of internal topics: of coordinators, Connect, Schema Registry and Streams.

`decode` decodes keys and values by the topic's name; `phrases` describes them.
"""
