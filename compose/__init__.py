"""Compose files, brought up by `harness.runtimes.docker`."""
