"""The writes of clients: the payload of each scenario, the filler around it, and the ballast of a topic."""
