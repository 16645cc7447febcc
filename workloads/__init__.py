"""Who writes what: the payload of each scenario, the filler around it, and the reader at the end."""
