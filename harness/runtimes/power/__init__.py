"""Power failures: record a broker's syncs to disk, and cut its files to the synced lengths.

An agent in the broker's JVM records every sync; its sources are in ``java/``. `nemesis` decides about broker and time.
"""
