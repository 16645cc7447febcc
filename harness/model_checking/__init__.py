"""Use of the models: explore every interleaving, and compare the model with real brokers."""
