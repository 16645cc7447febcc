"""The evidence of a round: the knowledge of clients, the logs of replicas, and the answers of brokers."""
