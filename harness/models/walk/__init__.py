"""Walks of every interleaving of a small cluster."""
