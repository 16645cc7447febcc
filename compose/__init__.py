"""Compose files, started by `harness.runtimes.docker`.

The files of an image of ours are in `compose.image`. What they leave open is filled in by the runtime.
"""
