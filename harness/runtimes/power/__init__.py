"""Power failures: what a broker synced to disk, and its files cut to that.

An agent in the broker's JVM notes every sync; its sources are in ``java/``. What is not here: which broker loses its
power, and when, which is in `nemesis`; whose files they are, which is in `harness.runtimes`.
"""
