"""Compose files, started by `harness.runtimes.docker`.

The runtime sets their variables. `compose.image` has the start script of the images that the harness builds.
"""
