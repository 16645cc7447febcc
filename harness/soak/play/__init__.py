"""Play a round on a cluster: clients, administrators and faults."""
