"""The writes of clients: the payload of each scenario, the filler around it, and the ballast of a topic.

The scenarios are data in `harness.schedules`; the client libraries are in `harness.clients`.
"""
